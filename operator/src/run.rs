//! The process: elector, controllers, webhook.
