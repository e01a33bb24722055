//! What became of a request, and what that means for the caller.

use std::error::Error;
use std::io;

use object_store::client::{HttpError, HttpErrorKind};

use crate::error::{ErrorKind, Request};

/// Servers that give a machine or container the keys of its role. They are asked if there are no others.
const MACHINE_ROLES: [&str; 3] = ["169.254.169.254", "169.254.170.2", "metadata.google.internal"];

/// What became of the last request of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// No request was sent.
    Unsent,
    /// There is no complete reply.
    Lost,
    /// There is no server to rely on: its certificate is not valid, or redirects have no end.
    Untrusted,
    /// The reply cannot be used.
    Unusable,
    /// A complete reply.
    Answered {
        /// HTTP status.
        status: u16,
        /// What the body says about a status that has several meanings.
        hint: Option<ErrorKind>,
    },
}

impl Outcome {
    /// Of a request without a complete reply.
    pub fn of(error: &HttpError) -> Self {
        match error.kind() {
            HttpErrorKind::Connect if chain(error).any(|error| error.is::<rustls::Error>()) => {
                Self::Untrusted
            }
            _ if chain(error).any(is_redirect) => Self::Untrusted,
            _ => Self::Lost,
        }
    }

    /// What it means. `conflict` is the meaning of status 409.
    pub fn kind(self, request: Request, conflict: ErrorKind) -> ErrorKind {
        let writes = matches!(request, Request::Put | Request::Delete);
        // A write with a reply that cannot be used was carried out, probably.
        let unusable = if writes { ErrorKind::Unclear } else { ErrorKind::Invalid };
        match self {
            Self::Unsent | Self::Untrusted => ErrorKind::Invalid,
            Self::Lost => ErrorKind::Unclear,
            Self::Unusable => unusable,
            Self::Answered { status, hint } => match status {
                200..=299 => unusable,
                304 | 412 => ErrorKind::Precondition,
                400 => hint.unwrap_or(ErrorKind::Invalid),
                401 | 403 | 407 => ErrorKind::Denied,
                // Of a write: there is no such bucket.
                404 | 410 if !writes => ErrorKind::Absent,
                405 | 501 => ErrorKind::Unsupported,
                408 | 425 | 429 | 500..=599 => ErrorKind::Unclear,
                409 => conflict,
                _ => ErrorKind::Invalid,
            },
        }
    }
}

/// The meaning of a refusal with status 400.
pub fn hint(body: &str) -> Option<ErrorKind> {
    let denied = ["ExpiredToken", "InvalidToken", "TokenRefreshRequired", "InvalidIdentityToken"];
    match body {
        _ if denied.iter().any(|code| body.contains(code)) => Some(ErrorKind::Denied),
        // The server waited too long for the body.
        _ if body.contains("RequestTimeout") => Some(ErrorKind::Unclear),
        _ => None,
    }
}

/// An error, and those it comes from.
fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| match error.downcast_ref::<io::Error>() {
        // Its `source` is not what it contains, but the source of that.
        Some(error) => error.get_ref().map(|inner| inner as &(dyn Error + 'static)),
        None => error.source(),
    })
}

fn is_redirect(error: &(dyn Error + 'static)) -> bool {
    error.downcast_ref::<reqwest::Error>().is_some_and(reqwest::Error::is_redirect)
}

/// A text from outside for a message: one line of at most `chars` characters that can be printed.
pub fn printable(text: &str, chars: usize) -> String {
    let mut short = String::new();
    for word in
        text.split(|char: char| char.is_whitespace() || char.is_control()).filter(|word| !word.is_empty())
    {
        let separator = if short.is_empty() { "" } else { " " };
        short.extend([separator, word]);
        if short.len() > 4 * chars {
            break;
        }
    }
    // Such as those that change the direction of the text.
    let is_invisible = |char| {
        let ranges = ['\u{200b}'..='\u{200f}', '\u{202a}'..='\u{202e}', '\u{2060}'..='\u{206f}'];
        char == '\u{feff}' || ranges.iter().any(|range| range.contains(&char))
    };
    let short: String = short.chars().filter(|char| !is_invisible(*char)).collect();
    match short.char_indices().nth(chars) {
        Some((end, _)) => format!("{}...", &short[..end]),
        None => short,
    }
}

/// The message of an error with its reasons, for people.
pub fn message(error: &(dyn Error + 'static)) -> String {
    let mut text = String::new();
    for error in chain(error) {
        let part = error.to_string();
        if !text.contains(&part) {
            let separator = if text.is_empty() { "" } else { ": " };
            text.extend([separator, &part]);
        }
    }
    let text = printable(&text, 1000);
    match MACHINE_ROLES.iter().any(|host| text.contains(host)) {
        true => {
            format!("there are no keys in the environment or a profile, and the machine gave none: {text}")
        }
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_from_outside_are_short_and_printable() {
        assert_eq!(
            printable("<Code>\n\t\u{1b}[31mNo\u{202e}Such\0Key </Code>", 99),
            "<Code> [31mNoSuch Key </Code>"
        );
        assert_eq!(printable(&"ä".repeat(50), 10), format!("{}...", "ä".repeat(10)));
        assert_eq!(printable(&"a b ".repeat(50), 5), "a b a...");
    }

    /// The message named a server that the user does not know.
    #[test]
    fn keys_that_were_not_found_are_named() {
        let of = |text: &str| message(&io::Error::other(text.to_owned()));
        let asked = of("Error performing PUT http://169.254.169.254/latest/api/token in 1 ms");
        assert!(asked.starts_with("there are no keys in the environment or a profile"), "{asked}");
        assert_eq!(of("Error performing GET https://host/x"), "Error performing GET https://host/x");
    }
}
