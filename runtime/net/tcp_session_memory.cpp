// Bodies that reach a peer on the same host through shared memory.

#include <boost/asio/post.hpp>

#include "runtime/net/tcp_session.hpp"

namespace waggle::net {

void tcp_session::on_offer(std::string_view offer) {
  if (!host_ || !outbound_ || path_)
    return fail({ec::protocol_violation, "an unexpected offer of shared memory"});
  auto socket = local_host::connect(offer, {self_, remote_.id});
  if (socket)
    return open_path(std::move(*socket));
  host_.reset(); // a peer makes one offer; a second one would cost us another attempt
  if (events_->shared_memory)
    events_->shared_memory(socket.error().code);
}

void tcp_session::open_path(unique_fd socket) {
  offered_.clear();
  if (closed_)
    return;
  local_path::events told;
  told.returned = [weak = weak_from_this()] {
    auto me = weak.lock();
    if (me && !me->closed_)
      asio::post(me->socket_.get_executor(), [me] { me->write_more(); });
  };
  told.neighbour = [seen = neighbour_](bool mutual) {
    seen->seen = true;
    if (mutual)
      seen->mutual = true;
  };
  told.state = [events = events_](ec why) {
    if (events->shared_memory)
      events->shared_memory(why);
  };
  path_ = host_->make_path(std::move(socket), std::move(told));
  facts_.shares_memory = path_ != nullptr;
}

void tcp_session::on_reference(std::string header) {
  if (!path_)
    return fail({ec::protocol_violation, "a reference without shared memory"});
  auto reference = read_reference(header);
  header.erase(0, memory_reference::size);
  // The same window as for bodies on the wire: it bounds what the peer can make us process.
  if (reference.bytes > frame_body_bytes_max || !reader_.window().take(reference.bytes))
    return fail({ec::protocol_violation, "the peer overran its window"});
  auto seen = path_->borrow(reference);
  if (!seen)
    return fail(seen.error());
  auto body = std::move(*seen);
  if (!handlers_.zero_copy_ok || !handlers_.zero_copy_ok(header, body.size)) {
    auto own = memory_for(header, body.size);
    std::memcpy(own.get(), body.data.get(), body.size);
    body = {std::move(own), body.size};
  }
  count_shared(false, body.size);
  if (handlers_.on_frame)
    handlers_.on_frame({std::move(header), std::move(body)});
}

/// Tells the peer which of its memory is no longer read, before anything else is written.
void tcp_session::return_borrowed() {
  for (auto ids = path_->take_returned(); !ids.empty(); ids = path_->take_returned()) {
    std::string header(8 * ids.size(), '\0');
    std::memcpy(header.data(), ids.data(), header.size());
    queue_.add(frame_kind::release, std::move(header));
  }
}

} // namespace waggle::net
