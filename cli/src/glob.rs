//! Shell patterns, as in `find -name`: `*`, `?`, `[...]` with ranges and classes such as `[:digit:]`, and `\` to quote
//! a character. Names need not be UTF-8.

/// Whether a name contains pattern characters.
pub fn is_pattern(name: &[u8]) -> bool {
    name.iter().any(|byte| b"*?[\\".contains(byte))
}

/// A pattern.
#[derive(Clone, Debug)]
pub struct Pattern {
    tokens: Vec<Token>,
    fold_case: bool,
}

#[derive(Clone, Debug)]
enum Token {
    /// One byte.
    Byte(u8),
    /// Any character: a UTF-8 sequence, or a byte that is not valid UTF-8.
    Any,
    /// Any number of bytes.
    Star,
    /// A character in a set, or not in it.
    Set { inverted: bool, members: Vec<Member> },
}

/// A member of a set.
#[derive(Clone, Debug)]
enum Member {
    /// A range of characters, as numbered by [`character`].
    Range(u32, u32),
    /// A class such as `[:alpha:]`.
    Class(Class),
}

impl Pattern {
    /// Parses a pattern. An unclosed `[` stands for itself.
    pub fn new(text: &[u8], fold_case: bool) -> Self {
        let mut tokens = Vec::new();
        let mut rest = text;
        while let Some((byte, after)) = rest.split_first() {
            rest = after;
            let token = match byte {
                b'*' => Token::Star,
                b'?' => Token::Any,
                b'[' => match set(rest, fold_case) {
                    Some((token, after)) => {
                        rest = after;
                        token
                    }
                    None => Token::Byte(b'['),
                },
                b'\\' => match rest.split_first() {
                    Some((escaped, after)) => {
                        rest = after;
                        Token::Byte(fold(*escaped, fold_case))
                    }
                    None => Token::Byte(b'\\'),
                },
                byte => Token::Byte(fold(*byte, fold_case)),
            };
            // Adjacent stars are one.
            if !matches!((&token, tokens.last()), (Token::Star, Some(Token::Star))) {
                tokens.push(token);
            }
        }
        Self { tokens, fold_case }
    }

    /// Whether all of `name` matches. Backtracks to the last star only, so that time is bounded by the product of both
    /// lengths.
    pub fn matches(&self, name: &[u8]) -> bool {
        let (mut token, mut position) = (0, 0);
        // The token after the last star, and the end of what the star matches.
        let mut star: Option<(usize, usize)> = None;
        loop {
            let rest = name.get(position..).unwrap_or_default();
            let matched = match self.tokens.get(token) {
                None if rest.is_empty() => return true,
                None => None,
                Some(Token::Star) => {
                    star = Some((token + 1, position));
                    token += 1;
                    continue;
                }
                Some(token) => self.match_length(token, rest),
            };
            match (matched, &mut star) {
                (Some(length), _) => {
                    token += 1;
                    position += length;
                }
                // Let the last star match one more byte.
                (None, Some((next_token, end))) if *end < name.len() => {
                    *end += 1;
                    (token, position) = (*next_token, *end);
                }
                (None, _) => return false,
            }
        }
    }

    /// Number of bytes that a token matches at the start of `rest`.
    fn match_length(&self, token: &Token, rest: &[u8]) -> Option<usize> {
        let byte = fold(*rest.first()?, self.fold_case);
        let (number, length) = character(rest)?;
        match token {
            Token::Byte(expected) => (byte == *expected).then_some(1),
            Token::Any => Some(length),
            Token::Set { inverted, members } => {
                let number = if length == 1 && number < INVALID_UTF8 { byte.into() } else { number };
                (members.iter().any(|member| member.contains(number)) != *inverted).then_some(length)
            }
            Token::Star => None,
        }
    }
}

impl Member {
    fn contains(&self, number: u32) -> bool {
        match self {
            Self::Range(from, to) => (*from..=*to).contains(&number),
            Self::Class(class) => char::from_u32(number).is_some_and(class),
        }
    }
}

fn fold(byte: u8, fold_case: bool) -> u8 {
    if fold_case { byte.to_ascii_lowercase() } else { byte }
}

/// Invalid UTF-8 bytes are numbered from here, after all characters.
const INVALID_UTF8: u32 = 0x11_0000;

/// Number and length of the first character.
fn character(bytes: &[u8]) -> Option<(u32, usize)> {
    let first = *bytes.first()?;
    let start = bytes.get(..bytes.len().min(4)).unwrap_or(bytes);
    let valid = start.utf8_chunks().next().and_then(|chunk| chunk.valid().chars().next());
    Some(valid.map_or((INVALID_UTF8 + u32::from(first), 1), |c| (c.into(), c.len_utf8())))
}

/// Parses a set after its `[`; also returns the rest.
fn set(text: &[u8], fold_case: bool) -> Option<(Token, &[u8])> {
    let inverted = matches!(text.first(), Some(b'!' | b'^'));
    let mut rest = text.get(usize::from(inverted)..)?;
    let mut members = Vec::new();
    loop {
        // A leading bracket is a member.
        if let (Some(after), false) = (rest.strip_prefix(b"]"), members.is_empty()) {
            return Some((Token::Set { inverted, members }, after));
        }
        if let Some((class, after)) = class(rest, fold_case) {
            members.push(Member::Class(class));
            rest = after;
            continue;
        }
        let (from, after) = member(rest, fold_case)?;
        let range = after.strip_prefix(b"-").filter(|after| !after.starts_with(b"]"));
        let (to, after) = match range {
            Some(after) => member(after, fold_case)?,
            None => (from, after),
        };
        members.push(Member::Range(from, to));
        rest = after;
    }
}

/// Parses a character of a set; also returns the rest.
fn member(text: &[u8], fold_case: bool) -> Option<(u32, &[u8])> {
    let text = text.strip_prefix(b"\\").filter(|after| !after.is_empty()).unwrap_or(text);
    let (number, length) = character(text)?;
    let folded = u8::try_from(number).ok().filter(u8::is_ascii).map(|byte| fold(byte, fold_case).into());
    Some((folded.unwrap_or(number), text.get(length..)?))
}

/// Parses a class such as `[:digit:]`; also returns the rest.
fn class(text: &[u8], fold_case: bool) -> Option<(Class, &[u8])> {
    let text = text.strip_prefix(b"[:")?;
    let end = text.windows(2).position(|two| two == b":]")?;
    let (name, after) = (text.get(..end)?, text.get(end + 2..)?);
    let class: Class = match name {
        b"upper" | b"lower" if fold_case => |c| c.is_uppercase() || c.is_lowercase(),
        _ => CLASSES.iter().find(|(known, _)| *known == name)?.1,
    };
    Some((class, after))
}

/// Whether a character belongs to a class.
type Class = fn(char) -> bool;

/// The classes and their names.
const CLASSES: [(&[u8], Class); 12] = [
    (b"alpha", char::is_alphabetic),
    (b"digit", |c| c.is_ascii_digit()),
    (b"alnum", |c| c.is_alphabetic() || c.is_ascii_digit()),
    (b"upper", char::is_uppercase),
    (b"lower", char::is_lowercase),
    (b"space", char::is_whitespace),
    (b"blank", |c| matches!(c, ' ' | '\t')),
    (b"punct", |c| c.is_ascii_punctuation()),
    (b"cntrl", char::is_control),
    (b"graph", |c| !c.is_control() && !c.is_whitespace()),
    (b"print", |c| !c.is_control()),
    (b"xdigit", |c| c.is_ascii_hexdigit()),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_shell_patterns() {
        for (pattern, matching, other) in [
            ("*", &["", "a", ".x"][..], &[][..]),
            ("*.rs", &[".rs", "a.rs", "a.rs.rs"], &["a.rsx", "rs"]),
            ("a?c", &["abc", "a\u{fc}c"], &["ac", "abbc"]),
            ("[a-c]x", &["ax", "cx"], &["dx", "x"]),
            ("[!a-c]x", &["dx"], &["ax"]),
            ("[]]", &["]"], &["[", ""]),
            ("[a-]", &["a", "-"], &["b"]),
            ("[\\]a]", &["]", "a"], &["\\"]),
            ("[\u{e4}\u{f6}]x", &["\u{e4}x", "\u{f6}x"], &["\u{fc}x", "x"]),
            ("[!\u{e4}]", &["\u{f6}", "a"], &["\u{e4}"]),
            ("[[:digit:]_]*", &["1a", "_"], &["a1", ":"]),
            ("[![:upper:]]", &["a", "1"], &["A"]),
            ("[[:none:]", &["["], &["x"]),
            ("[", &["["], &["x"]),
            ("\\*", &["*"], &["a"]),
            ("*a*b", &["ab", "xaxxb", "aab"], &["ba", "abx"]),
        ] {
            let matcher = Pattern::new(pattern.as_bytes(), false);
            for name in matching {
                assert!(matcher.matches(name.as_bytes()), "{pattern} and {name}");
            }
            for name in other {
                assert!(!matcher.matches(name.as_bytes()), "{pattern} and {name}");
            }
        }
    }

    #[test]
    fn matches_without_case_and_invalid_utf8() {
        assert!(Pattern::new(b"*.JPG", true).matches(b"a.jPg"));
        assert!(Pattern::new(b"[A-Z]", true).matches(b"q"));
        assert!(Pattern::new(b"?\xff*", false).matches(b"\xfe\xff"));
    }

    #[test]
    fn many_stars_match_in_bounded_time() {
        let pattern = Pattern::new("*a".repeat(100).as_bytes(), false);
        assert!(!pattern.matches(format!("{}b", "a".repeat(255)).as_bytes()));
    }
}
