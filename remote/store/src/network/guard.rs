//! The HTTP client of `object_store`, with bounds.
//!
//! # Invariants
//! - A reply is read into memory here, up to a limit. `object_store` sees only complete replies.
//! - Headers whose arithmetic may overflow are refused here.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use base::lock::{Mutex, Rank};
use futures_util::StreamExt;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody,
    HttpService, ReqwestConnector,
};
use object_store::{ClientOptions, HeaderMap, HeaderValue};

use super::outcome::{Outcome, hint, printable};

/// Largest reply that is no object: a page of a list, credentials.
const REPLY_BYTES: u64 = 32 << 20;
/// As much of the body of a refusal as is read.
const REFUSAL_BYTES: u64 = 16 << 10;
/// As much of it as becomes part of a message.
const REFUSAL_CHARS: usize = 400;

tokio::task_local! {
    /// The call of a store that this task works for.
    pub static CALL: Arc<Call>;
}

/// Marks the request of an object, with the largest length that the caller takes.
#[derive(Clone, Copy, Debug)]
pub struct ObjectBytes(pub u64);

/// A call of a store.
#[derive(Debug)]
pub struct Call {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    requests_left: u32,
    outcome: Outcome,
}

impl Call {
    /// A call that may send so many requests.
    pub fn new(requests: u32) -> Self {
        let state = State { requests_left: requests, outcome: Outcome::Unsent };
        Self { state: Mutex::new(Rank::Leaf, state) }
    }

    /// What became of its last request.
    pub fn outcome(&self) -> Outcome {
        self.state.lock().outcome
    }

    fn note(&self, outcome: Outcome) {
        self.state.lock().outcome = outcome;
    }

    fn unusable(&self, reason: impl Into<String>) -> HttpError {
        self.note(Outcome::Unusable);
        HttpError::new(HttpErrorKind::Decode, Unusable(reason.into()))
    }

    /// Sends a request and reads its reply.
    async fn send(&self, client: HttpClient, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let allowed = {
            let mut state = self.state.lock();
            state.outcome = Outcome::Lost;
            let allowed = state.requests_left > 0;
            state.requests_left = state.requests_left.saturating_sub(1);
            allowed
        };
        if !allowed {
            return Err(self.unusable("the server answers with more pages than a list can have"));
        }
        let object = request.extensions().get::<ObjectBytes>().copied();
        let ranged = request.headers().contains_key("range");
        let response = client.execute(request).await.inspect_err(|error| self.note(Outcome::of(error)))?;
        let (mut parts, body) = response.into_parts();
        let status = parts.status.as_u16();
        if !parts.status.is_success() {
            let (text, _) = read(body, REFUSAL_BYTES).await;
            let text = String::from_utf8_lossy(&text).into_owned();
            self.note(Outcome::Answered { status, hint: hint(&text) });
            return Ok(HttpResponse::from_parts(parts, printable(&text, REFUSAL_CHARS).into()));
        }
        if object.is_some() && ranged && status == 200 {
            // A server without ranges; but for an empty object a server with them may answer so, too.
            let empty = number(&parts.headers, "content-length") == Some(0);
            self.note(Outcome::Answered { status: if empty { 416 } else { status }, hint: None });
            return Ok(HttpResponse::from_parts(parts, Vec::new().into()));
        }
        if !is_sound_range(&parts.headers) {
            return Err(self.unusable("its Content-Range is not valid"));
        }
        let limit = object.map_or(REPLY_BYTES, |ObjectBytes(limit)| limit);
        let too_large = || self.unusable(format!("it is larger than {limit} bytes"));
        if number(&parts.headers, "content-length").is_some_and(|length| length > limit) {
            return Err(too_large());
        }
        let bytes = match read(body, limit).await {
            (_, End::Limit) => return Err(too_large()),
            (_, End::Lost(error)) => return Err(error),
            (bytes, End::Complete) => bytes,
        };
        if object.is_some() {
            // A reply in chunks does not state it.
            parts.headers.insert("content-length", HeaderValue::from(bytes.len() as u64));
        }
        self.note(Outcome::Answered { status, hint: None });
        Ok(HttpResponse::from_parts(parts, bytes.into()))
    }
}

/// How the reading of a body ended.
enum End {
    Complete,
    Limit,
    Lost(HttpError),
}

/// The first `limit` bytes of a body.
async fn read(body: HttpResponseBody, limit: u64) -> (Vec<u8>, End) {
    let (mut stream, mut bytes) = (body.bytes_stream(), Vec::new());
    while let Some(chunk) = stream.next().await {
        match chunk {
            Ok(chunk) => {
                let room = limit.saturating_sub(bytes.len() as u64);
                let taken = usize::try_from(room).map_or(chunk.len(), |room| room.min(chunk.len()));
                if bytes.capacity() - bytes.len() < taken {
                    // Twice as much, as usual, but not more than the limit.
                    let more = (bytes.len() as u64).max(taken as u64).min(room);
                    bytes.reserve_exact(usize::try_from(more).unwrap_or(taken));
                }
                bytes.extend_from_slice(&chunk[..taken]);
                if taken < chunk.len() {
                    return (bytes, End::Limit);
                }
            }
            Err(error) => return (bytes, End::Lost(error)),
        }
    }
    (bytes, End::Complete)
}

fn number(headers: &HeaderMap, name: &str) -> Option<u64> {
    headers.get(name)?.to_str().ok()?.trim().parse().ok()
}

/// Whether a `Content-Range` is absent, or `bytes FIRST-LAST/LENGTH` with FIRST <= LAST < LENGTH.
fn is_sound_range(headers: &HeaderMap) -> bool {
    let Some(value) = headers.get("content-range") else { return true };
    let sound = || {
        let (range, length) = value.to_str().ok()?.trim().strip_prefix("bytes ")?.split_once('/')?;
        let (first, last) = range.split_once('-')?;
        let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
        Some(first <= last && last < length.parse().ok()?)
    };
    sound() == Some(true)
}

/// A reply that cannot be used.
#[derive(Debug)]
struct Unusable(String);

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Unusable {}

/// Makes guarded clients.
#[derive(Debug)]
pub struct Guard;

impl HttpConnector for Guard {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = ReqwestConnector::default().connect(options)?;
        Ok(HttpClient::new(GuardedClient { client }))
    }
}

#[derive(Debug)]
struct GuardedClient {
    client: HttpClient,
}

impl HttpService for GuardedClient {
    fn call<'service, 'reply>(
        &'service self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'reply>>
    where
        'service: 'reply,
        Self: 'reply,
    {
        let client = self.client.clone();
        Box::pin(async move {
            let call = CALL.try_with(Arc::clone).unwrap_or_else(|_| Arc::new(Call::new(1)));
            call.send(client, request).await
        })
    }
}
