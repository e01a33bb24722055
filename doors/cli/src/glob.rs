//! Shell patterns over bytes, as `find -name` has them: `*`, `?`, `[...]`, and `\` before a character that stands for
//! itself.

/// A pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    tokens: Vec<Token>,
    fold_case: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    /// One byte.
    Byte(u8),
    /// Any one character: of as many bytes as UTF-8 gives it, or one byte that is no UTF-8.
    Any,
    /// Any number of bytes.
    Star,
    /// One byte of a set, or one that is in none of its ranges.
    Set { inverted: bool, ranges: Vec<(u8, u8)> },
}

impl Pattern {
    /// Takes a pattern apart. A `[` that is not closed stands for itself.
    pub fn new(text: &[u8], fold_case: bool) -> Self {
        let mut tokens = Vec::new();
        let mut rest = text;
        while let Some((byte, behind)) = rest.split_first() {
            rest = behind;
            let token = match byte {
                b'*' => Token::Star,
                b'?' => Token::Any,
                b'[' => match set(rest, fold_case) {
                    Some((token, behind)) => {
                        rest = behind;
                        token
                    }
                    None => Token::Byte(b'['),
                },
                b'\\' => match rest.split_first() {
                    Some((escaped, behind)) => {
                        rest = behind;
                        Token::Byte(fold(*escaped, fold_case))
                    }
                    None => Token::Byte(b'\\'),
                },
                byte => Token::Byte(fold(*byte, fold_case)),
            };
            // A run of stars is one.
            if token != Token::Star || tokens.last() != Some(&Token::Star) {
                tokens.push(token);
            }
        }
        Self { tokens, fold_case }
    }

    /// Whether all of `name` matches. Goes back to the last star only, so that time is at most the product of both
    /// lengths.
    pub fn matches(&self, name: &[u8]) -> bool {
        let (mut token, mut at) = (0, 0);
        let mut star: Option<(usize, usize)> = None;
        loop {
            let rest = name.get(at..).unwrap_or_default();
            let step = match self.tokens.get(token) {
                None if rest.is_empty() => return true,
                None => None,
                Some(Token::Star) => {
                    star = Some((token + 1, at));
                    token += 1;
                    continue;
                }
                Some(one) => self.step(one, rest),
            };
            match (step, &mut star) {
                (Some(length), _) => {
                    token += 1;
                    at += length;
                }
                // The last star takes one byte more.
                (None, Some((behind, from))) if *from < name.len() => {
                    *from += 1;
                    (token, at) = (*behind, *from);
                }
                (None, _) => return false,
            }
        }
    }

    /// How many bytes one token takes from the start of `rest`.
    fn step(&self, token: &Token, rest: &[u8]) -> Option<usize> {
        let byte = fold(*rest.first()?, self.fold_case);
        match token {
            Token::Byte(expected) => (byte == *expected).then_some(1),
            Token::Any => Some(character_length(rest)),
            Token::Set { inverted, ranges } => {
                let inside = ranges.iter().any(|(from, to)| (*from..=*to).contains(&byte));
                (inside != *inverted).then_some(1)
            }
            Token::Star => None,
        }
    }
}

fn fold(byte: u8, fold_case: bool) -> u8 {
    if fold_case { byte.to_ascii_lowercase() } else { byte }
}

fn character_length(bytes: &[u8]) -> usize {
    let most = bytes.get(..bytes.len().min(4)).unwrap_or(bytes);
    let valid = most.utf8_chunks().next().and_then(|chunk| chunk.valid().chars().next());
    valid.map_or(1, char::len_utf8)
}

/// A set behind its `[`, and what follows it.
fn set(text: &[u8], fold_case: bool) -> Option<(Token, &[u8])> {
    let inverted = matches!(text.first(), Some(b'!' | b'^'));
    let mut rest = text.get(usize::from(inverted)..)?;
    let mut ranges = Vec::new();
    loop {
        let (byte, behind) = rest.split_first()?;
        rest = behind;
        match (byte, rest) {
            // A bracket that comes first is one of the set.
            (b']', _) if !ranges.is_empty() => return Some((Token::Set { inverted, ranges }, rest)),
            (from, [b'-', to, behind @ ..]) if *to != b']' => {
                ranges.push((fold(*from, fold_case), fold(*to, fold_case)));
                rest = behind;
            }
            (b'\\', [escaped, behind @ ..]) => {
                ranges.push((fold(*escaped, fold_case), fold(*escaped, fold_case)));
                rest = behind;
            }
            (byte, _) => ranges.push((fold(*byte, fold_case), fold(*byte, fold_case))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_a_shell() {
        for (pattern, yes, no) in [
            ("*", &["", "a", ".x"][..], &[][..]),
            ("*.rs", &[".rs", "a.rs", "a.rs.rs"], &["a.rsx", "rs"]),
            ("a?c", &["abc", "a\u{fc}c"], &["ac", "abbc"]),
            ("[a-c]x", &["ax", "cx"], &["dx", "x"]),
            ("[!a-c]x", &["dx"], &["ax"]),
            ("[]]", &["]"], &["[", ""]),
            ("[", &["["], &["x"]),
            ("\\*", &["*"], &["a"]),
            ("*a*b", &["ab", "xaxxb", "aab"], &["ba", "abx"]),
        ] {
            let matcher = Pattern::new(pattern.as_bytes(), false);
            for name in yes {
                assert!(matcher.matches(name.as_bytes()), "{pattern} and {name}");
            }
            for name in no {
                assert!(!matcher.matches(name.as_bytes()), "{pattern} and {name}");
            }
        }
    }

    #[test]
    fn case_is_ignored_on_demand_and_bytes_need_not_be_utf8() {
        assert!(Pattern::new(b"*.JPG", true).matches(b"a.jPg"));
        assert!(Pattern::new(b"[A-Z]", true).matches(b"q"));
        assert!(Pattern::new(b"?\xff*", false).matches(b"\xfe\xff"));
    }

    #[test]
    fn many_stars_do_not_take_long() {
        let pattern = Pattern::new("*a".repeat(100).as_bytes(), false);
        assert!(!pattern.matches(format!("{}b", "a".repeat(255)).as_bytes()));
    }
}
