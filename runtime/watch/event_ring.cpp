#include "runtime/watch/event_ring.hpp"

#include <algorithm>

namespace waggle {

void event_ring::note(const watch::event& what, const peer_id& writer, swarm_time now) {
  push(watch::kind_of(what), watch::fields_of(what, writer, now));
  std::lock_guard guard{listening_};
  std::erase_if(listeners_, [&](const listener& to) { return !to(what, now); });
}

void event_ring::listen(listener to) {
  std::lock_guard guard{listening_};
  listeners_.push_back(std::move(to));
}

void event_ring::push(watch::event_kind kind, std::string_view fields) {
  std::lock_guard guard{mutex_};
  auto text = "{\"seq\":" + std::to_string(++last_) + ",";
  text.append(fields).append("}");
  entry made{last_, kind, std::make_shared<const std::string>(std::move(text))};
  bytes_ += made.text->size();
  ring_.push_back(made);
  while (bytes_ > bytes_max_ && ring_.size() > 1) {
    bytes_ -= ring_.front().text->size();
    ring_.pop_front();
  }
  auto kept = kind == watch::event_kind::round        ? rounds_kept
              : kind == watch::event_kind::epoch      ? others_kept / 2
              : kind == watch::event_kind::checkpoint ? checkpoints_kept
                                                      : others_kept;
  auto& its = newest_[static_cast<std::size_t>(kind)];
  its.push_back(std::move(made));
  if (its.size() > kept)
    its.pop_front();
}

event_ring::batch event_ring::after(number seen, std::size_t bytes) const {
  std::lock_guard guard{mutex_};
  batch out;
  out.last = std::min(seen, last_);
  if (ring_.empty() || seen >= last_)
    return out;
  auto first = ring_.front().at;
  if (seen + 1 < first)
    out.missed = first - seen - 1;
  std::size_t sum = 0;
  for (auto i = std::max(seen + 1, first) - first; i < ring_.size(); ++i) {
    const auto& next = ring_[i];
    sum += next.text->size();
    if (sum > bytes && !out.lines.empty())
      break;
    out.lines.push_back(next.text);
    out.kinds.push_back(next.kind);
    out.last = next.at;
  }
  return out;
}

event_ring::number event_ring::last() const {
  std::lock_guard guard{mutex_};
  return last_;
}

event_ring::recent event_ring::newest() const {
  std::lock_guard guard{mutex_};
  recent out;
  out.last = last_;
  constexpr auto rounds = static_cast<std::size_t>(watch::event_kind::round);
  for (const auto& each : newest_[rounds])
    out.rounds.push_back(each.text);
  std::vector<entry> merged;
  for (std::size_t kind = 0; kind < newest_.size(); ++kind)
    if (kind != rounds)
      merged.insert(merged.end(), newest_[kind].begin(), newest_[kind].end());
  std::ranges::sort(merged, {}, &entry::at);
  for (const auto& each : merged)
    out.others.push_back(each.text);
  return out;
}

} // namespace waggle
