//! The real program on real sockets: the link, live updates, and what is refused.

mod http;
mod link;
mod live;
mod product;
mod start;
mod wire;
