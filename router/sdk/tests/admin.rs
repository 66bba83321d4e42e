//! What an admin call says when nobody answers it.

use std::net::TcpListener;
use std::time::Duration;
use undb_sdk::{Admin, Error, Options, Timeouts};

/// A port that nobody listens on.
const NOBODY: &str = "127.0.0.1:1";

/// Takes connections and never says a word.
fn silent() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound").to_string();
    (listener, address)
}

async fn refusal(endpoints: &[&str]) -> String {
    let timeouts = Timeouts { admin: Duration::from_millis(500), ..Timeouts::default() };
    let options = Options::new(endpoints.iter().copied()).timeouts(timeouts);
    let error = Admin::new(&options).expect("addresses").status().await.expect_err("nobody answers");
    assert!(matches!(error, Error::DeadlineExceeded { .. }), "{error:?}");
    error.to_string()
}

#[tokio::test]
async fn a_call_that_nobody_answered_in_time_names_the_endpoints_it_tried() {
    let (_listener, address) = silent();
    let message = refusal(&[&address]).await;
    assert_eq!(message, format!("no answer within 500ms: tried {address}; none has answered yet"));
}

#[tokio::test]
async fn a_call_that_ran_out_of_time_tells_the_last_error_before() {
    let (_listener, address) = silent();
    let message = refusal(&[NOBODY, &address]).await;
    let begin = format!("no answer within 500ms: tried {NOBODY}, {address}; the last error: cannot reach");
    assert!(message.starts_with(&begin), "{message}");
}
