//! Which namespaces controllers look at: all of them by one watch, or each that is named by its own.

use crate::ctx::Ctx;
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource};
use std::future::Future;

/// One namespace, or all.
#[derive(Clone)]
pub struct Scope {
    client: Client,
    namespace: Option<String>,
}

impl Scope {
    /// `None`: all namespaces.
    pub fn new(ctx: &Ctx, namespace: Option<String>) -> Self {
        Self { client: ctx.client.clone(), namespace }
    }

    /// Objects of a kind in it.
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        match &self.namespace {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        }
    }
}

/// Runs a controller for each scope, until all have ended.
pub async fn each<F: Future<Output = ()>>(ctx: &Ctx, controller: impl Fn(Option<String>) -> F) {
    let namespaces = &ctx.settings.watch_namespaces;
    let scopes =
        if namespaces.is_empty() { vec![None] } else { namespaces.iter().cloned().map(Some).collect() };
    futures::future::join_all(scopes.into_iter().map(controller)).await;
}
