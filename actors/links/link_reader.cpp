// I/O thread: frame ─► decode ─ part, round_* ─► round_registry
//                            └ everything else ─► frame_arrived ─► peer_link

#include "actors/links/link_reader.hpp"

#include "runtime/wire/convert.hpp"

namespace waggle {

namespace {

/// Larger bodies are no pieces of a state (state_donor_config::chunk_bytes).
constexpr std::size_t chunk_bytes_max = 1_MiB;

/// To read a frame that is not a message, and to do what it says; measured: a part of this. Honest
/// peers send few: a slice of a body is 16 KiB or more, and a window update grants megabytes.
constexpr net::work overhead_frame{1};

/// An estimate of the time that it takes to process a message.
net::work work_for(std::size_t header_bytes, const result<wire::message>& message) {
  auto all =
    net::cost::frame + net::work{static_cast<net::work::rep>(header_bytes / net::cost::byte_part)};
  if (!message)
    return all;
  if (const auto* event = std::get_if<wire::event>(&*message)) {
    if (std::holds_alternative<wire::progress_push>(*event))
      all += net::cost::signature;
    if (std::holds_alternative<wire::reach_note>(*event)) // answered with our report
      all += net::cost::signature;
  } else if (const auto* call = std::get_if<wire::call>(&*message)) {
    if (const auto* store = std::get_if<wire::dht_store>(&call->what))
      all += net::cost::signature * store->records.size();
    else if (const auto* find = std::get_if<wire::dht_find>(&call->what))
      all += net::cost::lookup * find->keys.size();
  }
  return all;
}

} // namespace

link_reader::link_reader(caf::weak_actor_ptr link, std::shared_ptr<net::link> connection,
                         const node_context& ctx, caf::actor_clock& clock,
                         std::shared_ptr<link_traffic> traffic,
                         std::shared_ptr<net::link_budget> budget)
  : link_(std::move(link)), connection_(connection), remote_(connection->remote()),
    rounds_(ctx.rounds), metrics_(ctx.metrics), clock_(clock), traffic_(std::move(traffic)),
    budget_(std::move(budget)) {}

bool link_reader::is_stranger() {
  if (!is_member_ && rounds_->has_averaged_with(remote_.id)) {
    is_member_ = true;
    budget_->become_member();
  }
  return !is_member_;
}

std::shared_ptr<std::byte> link_reader::body_memory(const std::string& header, std::size_t bytes) {
  const auto* part = announced_part(header, bytes);
  auto where = part == nullptr ? nullptr : rounds_->destination(remote_.id, *part, bytes);
  if (where != nullptr || !is_stranger())
    return where;
  auto round = part == nullptr ? round_id{} : part->round;
  bool chunk = part == nullptr && bytes <= chunk_bytes_max;
  // Weak: a body may be parked in the registry.
  return budget_->body(bytes, [traffic = traffic_, weak = std::weak_ptr{rounds_}, from = remote_.id,
                               round, bytes, chunk] {
    auto rounds = weak.lock();
    return (chunk && traffic->chunks_asked > 0)
           || (rounds && (rounds->has_averaged_with(from) || rounds->expects(from, round, bytes)));
  });
}

std::shared_ptr<void> link_reader::long_header(std::size_t bytes) {
  if (!is_stranger())
    return nullptr;
  // Weak, as above. The peer may become a member while its header waits.
  return budget_->room(bytes,
                       [traffic = traffic_, weak = std::weak_ptr{rounds_}, from = remote_.id] {
                         auto rounds = weak.lock();
                         return traffic->asked > 0 || (rounds && rounds->has_averaged_with(from));
                       });
}

bool link_reader::zero_copy_ok(const std::string& header, std::size_t bytes) {
  const auto* part = announced_part(header, bytes);
  return part != nullptr && rounds_->zero_copy_ok(*part);
}

void link_reader::on_frame(net::frame f) {
  auto now = clock_.now();
  traffic_->received.store(now.time_since_epoch().count());
  traffic_->frames.fetch_add(1);
  // Control frames may come between a body's announcement and the body.
  auto message = announced_ && !f.body.empty() ? *std::exchange(announced_, std::nullopt)
                                               : wire::decode(f.header, f.body.size);
  bool sign_of_life = message
                      && (std::holds_alternative<wire::ping>(*message)
                          || std::holds_alternative<wire::pong>(*message));
  if (!sign_of_life)
    traffic_->used.store(now.time_since_epoch().count());
  if (is_stranger())
    budget_->charge(work_for(f.header.size(), message), now);
  auto connection = connection_.lock();
  if (message && connection)
    if (auto* event = std::get_if<wire::event>(&*message))
      if (round_of(*event) != nullptr) {
        inbound_event arrived{remote_, std::move(*event), std::move(f.body), std::move(connection)};
        arrived.header_bytes = f.header.size();
        if (!rounds_->deliver(arrived, now))
          metrics_->count_refused_input(ec::unknown_round);
        return;
      }
  if (auto target = caf::actor_cast<caf::strong_actor_ptr>(link_))
    caf::anon_send(
      caf::actor_cast<frame_listener_actor>(target),
      frame_arrived{std::move(message), std::move(f.body), budget_->admit(f.header.size())});
}

void link_reader::on_overhead(std::size_t frames, std::size_t header_bytes) {
  if (!is_stranger())
    return;
  auto reading = net::work{static_cast<net::work::rep>(header_bytes / net::cost::byte_part)};
  budget_->charge(frames * overhead_frame + reading, clock_.now());
}

void link_reader::on_close(failure why) {
  if (auto target = caf::actor_cast<caf::strong_actor_ptr>(link_))
    caf::anon_send(caf::actor_cast<frame_listener_actor>(target), connection_ended{std::move(why)});
}

/// The part whose body arrives next; null: the next body is not one of a part.
const wire::part* link_reader::announced_part(const std::string& header, std::size_t bytes) {
  if (!announced_)
    announced_.emplace(wire::decode(header, bytes));
  if (!*announced_)
    return nullptr;
  const auto* event = std::get_if<wire::event>(&**announced_);
  return event == nullptr ? nullptr : std::get_if<wire::part>(event);
}

} // namespace waggle
