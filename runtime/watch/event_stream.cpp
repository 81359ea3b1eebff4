#include "runtime/watch/event_stream.hpp"

#include <charconv>
#include <utility>

namespace waggle {

namespace {

/// The number in "START-SEQ", if START is that of this ring and the number has been given out.
std::optional<event_ring::number> number_in(std::string_view id, const event_ring& ring) {
  const auto& start = ring.start();
  if (id.size() <= start.size() + 1 || !id.starts_with(start) || id[start.size()] != '-')
    return std::nullopt;
  id.remove_prefix(start.size() + 1);
  event_ring::number at = 0;
  auto [end, error] = std::from_chars(id.data(), id.data() + id.size(), at);
  if (error != std::errc{} || end != id.data() + id.size() || at > ring.last())
    return std::nullopt;
  return at;
}

} // namespace

event_stream::event_stream(std::shared_ptr<const event_ring> ring, documents show,
                           std::string_view last_event_id)
  : ring_(std::move(ring)), show_(std::move(show)) {
  if (last_event_id.empty())
    return;
  if (auto at = number_in(last_event_id, *ring_)) {
    seen_ = *at;
    wants_snapshot_ = false;
  } else {
    begins_with_gap_ = true;
  }
}

std::string event_stream::next(steady_time now) {
  if (sent_ == pending_.size()) {
    pending_.clear();
    sent_ = 0;
    compose(now);
  }
  auto piece = pending_.substr(sent_, piece_bytes_max);
  sent_ += piece.size();
  if (sent_ == pending_.size()) { // what was large must not stay in memory
    std::string{}.swap(pending_);
    sent_ = 0;
  }
  return piece;
}

void event_stream::compose(steady_time now) {
  auto news = wants_snapshot_ ? event_ring::batch{} : ring_->after(seen_, piece_bytes_max / 2);
  if (std::exchange(begins_with_gap_, false))
    add_gap(std::nullopt);
  if (news.missed > 0) {
    add_gap(news.missed);
    wants_snapshot_ = true;
  }
  if (std::exchange(wants_snapshot_, false)) {
    add_snapshot();
    vitals_at_ = now; // they are part of it
  } else {
    for (const auto& line : news.lines) {
      pending_ += "id: " + ring_->start() + "-" + std::to_string(++seen_) + "\n";
      add_frame("event", *line);
    }
    seen_ = news.last;
  }
  if (!vitals_at_ || now - *vitals_at_ >= vitals_interval) {
    vitals_at_ = now;
    add_frame("vitals", show_.vitals());
  }
  if (show_.mask && !pending_.empty())
    show_.mask(pending_);
}

void event_stream::add_frame(std::string_view name, std::string_view data) {
  // No JSON that is added here has a line end in it.
  pending_.append("event: ").append(name).append("\ndata: ").append(data).append("\n\n");
}

void event_stream::add_gap(std::optional<std::uint64_t> missed) {
  add_frame("gap", missed ? "{\"missed\":" + std::to_string(*missed) + "}" : "{}");
}

void event_stream::add_snapshot() {
  auto newest = ring_->newest();
  seen_ = newest.last;
  auto text = show_.snapshot();
  auto add = [&](std::string_view name, const std::vector<event_ring::line>& lines) {
    std::size_t first = lines.size(); // that fits
    for (std::size_t bytes = 0; first > 0; --first) {
      bytes += lines[first - 1]->size() + 1;
      if (bytes > rounds_bytes_max)
        break;
    }
    text.append(",\"").append(name).append("\":[");
    for (auto i = first; i < lines.size(); ++i)
      text.append(i == first ? "" : ",").append(*lines[i]);
    text += "]";
  };
  add("rounds", newest.rounds);
  add("events", newest.others);
  // The client continues here if it is cut off.
  pending_ += "id: " + ring_->start() + "-" + std::to_string(seen_) + "\n";
  add_frame("snapshot", text + "}");
}

} // namespace waggle
