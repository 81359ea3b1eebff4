#include "runtime/net/link_memory.hpp"

#include <cstring>
#include <utility>

namespace waggle::net {

namespace {

/// Sending smaller bodies over TCP is faster than by reference. Measured with
/// tests/bench/allreduce_driver: bodies of 64 KiB gain nothing, of 128 KiB a fifth.
constexpr std::size_t lent_bytes_min = 128_KiB;

failure violation(const char* what) {
  return {ec::protocol_violation, what};
}

} // namespace

std::string link_memory::begin(bool same_host, setup with) {
  if (!same_host)
    host_.reset();
  with_ = std::move(with);
  if (!host_ || with_.dialler)
    return {};
  auto offer = host_->expect(with_.ends, [this, owner = with_.owner](unique_fd socket) {
    if (auto alive = owner.lock())
      open(std::move(socket));
  });
  offered_ = std::move(offer.answer);
  return std::move(offer.bytes); // empty if the answer is
}

status link_memory::on_offer(std::string_view offer) {
  if (!host_ || !with_.dialler || path_)
    return violation("an unexpected offer of shared memory");
  auto socket = local_host::connect(offer, with_.ends);
  if (socket) {
    open(std::move(*socket));
    return done{};
  }
  host_.reset(); // a peer makes one offer; a second one would cost us another attempt
  events_->shared_memory(socket.error().code);
  return done{};
}

void link_memory::open(unique_fd socket) {
  offered_.clear();
  if (!host_)
    return; // the link has ended
  path_ = host_->make_path(std::move(socket), {with_.returned, neighbour_, events_->shared_memory});
  opened_ = true;
}

status link_memory::on_release(std::string_view ids) {
  // Without a path, nothing was lent.
  if (!path_ || ids.empty())
    return violation("a release of nothing");
  path_->on_release(ids);
  return done{};
}

result<payload> link_memory::resolve(std::string& header, receive_window& window) {
  if (!path_)
    return violation("a reference without shared memory");
  auto reference = read_reference(header);
  header.erase(0, memory_reference::size);
  // The same window as for bodies on the wire: it bounds what the peer can make us process.
  if (reference.bytes > frame_body_bytes_max || !window.take(reference.bytes))
    return violation("the peer overran its window");
  auto body = path_->borrow(reference);
  if (body)
    count(false, body->size);
  return body;
}

void link_memory::refer(outgoing& out) {
  auto& content = out.content;
  if (!path_ || content.body.size < lent_bytes_min)
    return;
  auto reference = path_->lend(content.body);
  if (!reference)
    return;
  out.lent = std::exchange(content.body, {}).size;
  content.header.insert(0, write_reference(*reference));
  out.prefix =
    write_prefix({frame_kind::reference, static_cast<std::uint32_t>(content.header.size()), 0});
  count(true, out.lent);
}

void link_memory::write_releases(write_queue& queue) {
  if (!path_)
    return;
  for (auto ids = path_->take_returned(); !ids.empty(); ids = path_->take_returned()) {
    std::string header(8 * ids.size(), '\0');
    std::memcpy(header.data(), ids.data(), header.size());
    queue.add(frame_kind::release, std::move(header));
  }
}

void link_memory::end() {
  if (host_ && !offered_.empty())
    host_->forget(offered_);
  if (path_)
    host_->retire(std::exchange(path_, nullptr));
  host_.reset();
}

void link_memory::count(bool outbound, std::size_t bytes) {
  bytes_.fetch_add(bytes, std::memory_order_relaxed);
  events_->shared(outbound, bytes);
}

} // namespace waggle::net
