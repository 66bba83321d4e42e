//! gRPC the way every part of UNDB speaks it: windows large enough for values, no Nagle, and
//! keep-alives that notice a peer that went away without a word.

mod channel;
mod serve;

pub use channel::{AuthChannel, auth_channel, channel, channel_over};
pub use serve::{bind, serve, serve_over};

pub use tonic::service::Routes;
pub use tonic::transport::Channel;

/// Largest message in bytes; give it to each client and server with `max_decoding_message_size`
/// and `max_encoding_message_size`.
pub const MESSAGE_BYTES_MAX: usize = 64 << 20;
const STREAM_WINDOW_BYTES: u32 = 4 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;
const FRAME_BYTES_MAX: u32 = 1 << 20;
