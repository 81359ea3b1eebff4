#include "runtime/allreduce/round_state.hpp"

#include <cstring>

#include "runtime/core/check.hpp"

namespace waggle {

namespace {

payload encoded(const part_table::part& part, std::span<const float> values, buffer_pool& buffers) {
  auto size = encoded_size(part.codec, part.count);
  auto bytes = buffers.take(size);
  encode(part.codec, values, {bytes.get(), size});
  return {std::move(bytes), size};
}

} // namespace

round_state::round_state(round_request what, round_config with, const round_memory& memory,
                         std::shared_ptr<round_port> via, clock time, round_protocol::options how)
  : request(std::move(what)), config(with), port(std::move(via)), now(std::move(time)),
    buffers(memory.encoded), protocol(plan(), self(), std::move(how)),
    transfers(plan(), self(), now()), own(transfers.parts(), plan().reduce_by),
    result(transfers.parts(), self(), memory.vectors->take(plan().elements)),
    weights(plan().members.size(), self(), request.weight),
    watch(plan().members.size(), config, now()) {
  marks.began = now();
  marks.self = self();
  for (std::size_t i = 0; i < plan().members.size(); ++i) {
    auto& member = marks.members.emplace_back();
    member.peer = plan().members[i].peer.id;
    member.contributes = plan().members[i].mode != member_mode::auxiliary;
    member.reduces = plan().shares[i] > 0;
  }
}

// -- sending --------------------------------------------------------------------------------------

void round_state::tell(std::size_t member, const wire::event& what, payload body) {
  send_to(std::vector{member}, what, body);
}

void round_state::send_to(const std::vector<std::size_t>& members, const wire::event& what,
                          const payload& body) {
  std::vector<const peer_record*> to;
  for (auto member : members) {
    if (member == self())
      continue;
    if (!over)
      marks.members[member].bytes_out += body.size;
    to.push_back(&plan().members[member].peer);
  }
  if (!to.empty())
    port->send_all(to, what, body);
}

void round_state::send_to(member_set members, const wire::event& what, const payload& body) {
  std::vector<std::size_t> in_order;
  members.for_each([&](std::size_t member) { in_order.push_back(member); });
  send_to(in_order, what, body);
}

wire::part round_state::header(std::uint32_t index, wire::part_kind kind) const {
  const auto& part = parts()[index];
  return wire::part{.round = plan().id,
                    .view = view().number,
                    .kind = kind,
                    .index = index,
                    .offset = part.offset,
                    .count = part.count};
}

bool round_state::fits(const wire::part& head, std::size_t bytes) const {
  if (head.index >= parts().size())
    return false;
  const auto& part = parts()[head.index];
  bool all = head.kind == wire::part_kind::result && sends_contributions_back(part.codec);
  auto times = all ? member_set{head.contributors}.size() : 1;
  return head.offset == part.offset && head.count == part.count
         && bytes == times * encoded_size(part.codec, part.count);
}

std::optional<payload> round_state::contribution(std::uint32_t index) const {
  const auto& part = parts()[index];
  if (travels_as_floats(part.codec))
    return slice(payload_of(request.values), part.offset * sizeof(float),
                 part.count * sizeof(float));
  auto values = std::span{*request.values}.subspan(part.offset, part.count);
  return all_finite(values) ? std::optional{encoded(part, values, *buffers)} : std::nullopt;
}

payload round_state::encode_sum(std::uint32_t index, const part_reducer& contributions,
                                member_set over, const std::shared_ptr<float>& out) const {
  const auto& part = parts()[index];
  payload bytes{
    std::shared_ptr<const std::byte>{out, reinterpret_cast<const std::byte*>(out.get())},
    part.count * sizeof(float)};
  if (travels_as_floats(part.codec))
    return bytes;
  if (sends_contributions_back(part.codec)) {
    auto size = encoded_size(part.codec, part.count);
    auto all = buffers->take(over.size() * size);
    auto* at = all.get();
    over.for_each([&](std::size_t member) {
      std::memcpy(at, contributions.contribution_of(member).values.data.get(), size);
      at += size;
    });
    return {std::move(all), over.size() * size};
  }
  auto same = contributions.unanimous(over);
  bytes = same ? *same : encoded(part, {out.get(), part.count}, *buffers);
  auto decoded = decode(part.codec, bytes.view(), std::span{out.get(), part.count});
  WAGGLE_CHECK(decoded.ok(), "our own encoding does not decode");
  return bytes;
}

status round_state::read_result(const wire::part& head, const payload& body,
                                std::span<float> out) const {
  const auto& part = parts()[head.index];
  auto finite = [](bool is) { return is ? status{done{}} : ec::non_finite; };
  if (travels_as_floats(part.codec))
    return finite(copy_finite(body.view(), out));
  if (!sends_contributions_back(part.codec))
    return finite(decode(part.codec, body.view(), out) && all_finite(out));
  member_set over{head.contributors};
  if (head.weights.size() != over.size())
    return ec::bad_weight;
  part_reducer contributions{part.codec, part.count, plan().reduce_by};
  for (auto& each : contributions_in(head, body)) {
    // Where members pledge, all contributions are compared, once all are known to be pledged.
    bool ours_alone = each.member == self() && !has_pledges(plan());
    auto ours = ours_alone ? contributed.find(head.index) : contributed.end();
    if (ours_alone
        && (ours == contributed.end()
            || !std::ranges::equal(ours->second.view(), each.values.view())))
      return ec::wrong_sum;
    if (auto added = contributions.add(each.member, each.weight, std::move(each.values)); !added)
      return added;
  }
  // Its owner leaves out whom we would leave out, and sends no sum before.
  auto excluded = contributions.reduce(over, out).excluded;
  return excluded.empty() ? status{done{}} : excluded.front().reason;
}

std::vector<round_state::sent_back> round_state::contributions_in(const wire::part& head,
                                                                  const payload& body) const {
  std::vector<sent_back> out;
  auto size = encoded_size(parts()[head.index].codec, head.count);
  member_set{head.contributors}.for_each([&](std::size_t member) {
    auto place = out.size();
    out.push_back({member, head.weights[place], slice(body, place * size, size)});
  });
  return out;
}

bool round_state::may_say(std::size_t from, std::size_t of, std::uint32_t view) const {
  return of == from || (from == leader_of(view, plan().members.size()) && is_client(of));
}

member_set round_state::clients_besides(std::size_t member) const {
  member_set clients;
  view().participant_set().for_each([&](std::size_t other) {
    if (other != member && is_client(other))
      clients.insert(other);
  });
  return clients;
}

// -- faults ---------------------------------------------------------------------------------------

void round_state::refuse(std::size_t member, ec reason) {
  port->count_refused(reason);
  suspect(member, reason);
}

void round_state::refuse(member_set members, ec reason, const std::string& why) {
  members.for_each([&](std::size_t member) {
    if (over || member == self())
      return;
    if (!why.empty())
      port->log(name_of(member) + why);
    refuse(member, reason);
  });
}

void round_state::suspect(std::size_t member, ec reason) {
  seen.emplace(member, reason);
  watch.fault(now());
  perform(protocol.on_suspicion(member, reason, now()));
}

} // namespace waggle
