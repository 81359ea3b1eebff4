#include "runtime/watch/timeline.hpp"

#include <algorithm>
#include <ctime>
#include <deque>
#include <optional>
#include <tuple>
#include <unordered_map>

#include <fmt/format.h>

#include "runtime/core/median.hpp"
#include "runtime/watch/event_text.hpp"
#include "runtime/watch/event_types.hpp"
#include "runtime/watch/json_fields.hpp"

namespace waggle {

namespace {

using json = nlohmann::ordered_json;

std::optional<json> parsed(std::string_view line) {
  constexpr int depth_max = 8;
  auto value = parse_document(line, depth_max);
  return value && value->is_object() ? value : std::nullopt;
}

bool is_time(double t) {
  return t >= static_cast<double>(timeline::t_min) && t <= static_cast<double>(timeline::t_max);
}

/// The next line; false: there is none. `out` is empty if it is too long.
bool next_line(std::istream& in, std::string& out) {
  out.clear();
  bool any = false;
  bool too_long = false;
  auto* buffer = in.rdbuf();
  for (auto c = buffer->sbumpc(); c != std::char_traits<char>::eof(); c = buffer->sbumpc()) {
    any = true;
    if (c == '\n')
      break;
    if (out.size() < timeline::line_bytes_max)
      out.push_back(static_cast<char>(c));
    else
      too_long = true;
  }
  if (too_long)
    out.clear();
  return any;
}

} // namespace

result<logged_event> parse_event(std::string_view line) {
  auto value = parsed(line);
  if (!value)
    return failure{ec::malformed, "no line of JSON"};
  logged_event out;
  out.type = text_in(*value, "type");
  auto writer = peer_id::parse(text_in(*value, "peer"));
  auto t = number_in(*value, "t");
  auto seq = value->find("seq");
  if (watch::find_event_type(out.type) == nullptr || !writer || !t || !is_time(*t)
      || seq == value->end() || !seq->is_number_unsigned())
    return failure{ec::malformed, "no event of this version"};
  out.writer = *writer;
  out.t = static_cast<std::int64_t>(*t);
  out.seq = seq->get<std::uint64_t>();
  if (out.type == "round") {
    auto began = number_in(*value, "began");
    auto lasted = number_in(*value, "duration_ms");
    auto id = round_id::parse(text_in(*value, "round"));
    if (!id || !began || !is_time(*began) || !lasted || *lasted < 0 || *lasted > 1e9)
      return failure{ec::malformed, "a round without its times"};
    if (text_in(*value, "outcome") != "failed")
      out.round = *id;
    out.round_end = static_cast<std::int64_t>(*began + *lasted);
  }
  out.line = line;
  return out;
}

void timeline::read(std::istream& log) {
  std::string line;
  while (next_line(log, line)) {
    auto event = parse_event(line);
    if (!event) {
      ++left_out_;
      continue;
    }
    if (event->type == "start")
      if (auto value = parsed(line))
        runs_.insert(text_in(*value, "run"));
    events_.push_back(std::move(*event));
  }
}

status timeline::align() {
  if (events_.empty())
    return failure{ec::bad_config, "there is no event in these files"};
  if (runs_.size() > 1)
    return failure{ec::bad_config, "these are logs of several runs: " + *runs_.begin() + " and "
                                     + *runs_.rbegin() + "; give those of one"};
  // When each writer saw each round end.
  std::map<peer_id, std::unordered_map<round_id, std::int64_t>> ends;
  for (const auto& event : events_) {
    auto& its = ends[event.writer];
    if (!event.round.is_zero())
      its.emplace(event.round, event.round_end);
  }
  auto first = std::max_element(ends.begin(), ends.end(), [](const auto& a, const auto& b) {
    return a.second.size() < b.second.size();
  });
  offsets_.emplace(first->first, 0);
  std::deque<peer_id> next{first->first};
  while (!next.empty()) {
    auto known = next.front();
    next.pop_front();
    for (const auto& [other, its] : ends) {
      if (offsets_.contains(other))
        continue;
      std::vector<std::int64_t> differences;
      for (const auto& [round, end] : its)
        if (auto same = ends.at(known).find(round); same != ends.at(known).end())
          differences.push_back(end - same->second);
      if (differences.empty())
        continue;
      offsets_.emplace(other, offsets_.at(known) + upper_median(std::move(differences)));
      next.push_back(other);
    }
  }
  for (const auto& [writer, its] : ends)
    if (offsets_.emplace(writer, 0).second)
      unaligned_.push_back(writer);
  for (auto& event : events_)
    event.t -= offsets_.at(event.writer);
  auto place = [](const logged_event& x) { return std::tie(x.t, x.writer, x.seq); };
  std::sort(events_.begin(), events_.end(),
            [&](const auto& a, const auto& b) { return place(a) < place(b); });
  // Logs may overlap.
  events_.erase(std::unique(events_.begin(), events_.end(),
                            [&](const auto& a, const auto& b) {
                              return place(a) == place(b) && a.line == b.line;
                            }),
                events_.end());
  return done{};
}

std::string time_text(std::int64_t t, const char* format) {
  std::time_t seconds = t / 1000;
  std::tm local{};
  ::localtime_r(&seconds, &local);
  char out[48];
  return {out, std::strftime(out, sizeof out, format, &local)};
}

std::string text_of(const logged_event& event) {
  auto value = parsed(event.line);
  return fmt::format("{}.{:03} {} {}", time_text(event.t, "%H:%M:%S"), event.t % 1000,
                     short_name(event.writer), value ? event_text(*value) : event.type);
}

} // namespace waggle
