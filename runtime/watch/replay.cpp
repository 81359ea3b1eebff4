#include "runtime/watch/replay.hpp"

#include <algorithm>
#include <charconv>
#include <span>

#include "runtime/watch/event_types.hpp"
#include "runtime/watch/json_fields.hpp"

namespace waggle {

namespace {

using json = nlohmann::ordered_json;

constexpr std::size_t others_max = 200;      // in one step
constexpr std::size_t rounds_per_step = 16;  // ten steps a second: more cannot be seen
constexpr std::size_t losses_per_peer = 150; // of the snapshot
constexpr std::size_t loss_peers_max = 16;
constexpr std::size_t left_max = 64;
constexpr std::int64_t left_shown_ms = 600'000;

/// Copies a value that is there.
void copy(json& out, const char* to, const json& in, const char* from) {
  if (auto found = in.find(from); found != in.end())
    out[to] = *found;
}

std::string dumped(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

/// The places of `in` within [first, last).
std::span<const std::uint32_t> within(const recording::track& in, std::size_t first,
                                      std::size_t last) {
  auto begin = std::lower_bound(in.begin(), in.end(), first);
  return {begin, std::lower_bound(begin, in.end(), last)};
}

/// The last `most` of them.
std::span<const std::uint32_t> newest(std::span<const std::uint32_t> all, std::size_t most) {
  return all.last(std::min(all.size(), most));
}

bool read_number(std::string_view text, std::int64_t& out) {
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc{} && end == text.data() + text.size();
}

} // namespace

recording::recording(timeline all) : all_(std::move(all)) {
  for (std::uint32_t i = 0; i < events().size(); ++i) {
    const auto& event = events()[i];
    auto& its = peers_[event.writer];
    auto& where = event.type == "round" ? its.rounds : event.type == "epoch" ? its.epochs : others_;
    where.push_back(i);
  }
}

peer_id recording::main_peer() const {
  auto size = [](const auto& x) { return x.second.rounds.size() + x.second.epochs.size(); };
  return std::max_element(peers_.begin(), peers_.end(),
                          [&](const auto& a, const auto& b) { return size(a) < size(b); })
    ->first;
}

json recording::marks() const {
  constexpr std::int64_t marks_max = 200;
  auto apart = (end() - begin()) / marks_max;
  auto out = json::array();
  for (auto at : others_) {
    const auto& event = events()[at];
    bool left =
      event.type == "peer_left" && event.line.find("\"ordered\":true") == std::string::npos;
    if ((left || event.type == "split")
        && (out.empty() || event.t - out.back()[0].get<std::int64_t>() > apart))
      out.push_back({event.t, left ? "a peer left" : "split"});
  }
  return out;
}

json recording::event(std::size_t at) const {
  const auto& event = events()[at];
  auto out = json::parse(event.line); // parse_event has accepted it
  out["t"] = event.t;
  if (auto offset = all_.offsets().at(event.writer); offset != 0 && event.type == "round")
    out["began"] = out["began"].get<std::int64_t>() - offset;
  return out;
}

result<replay_request> replay_request::parse(std::string_view query) {
  auto bad = failure{ec::malformed, "the query of a replay is at=MILLISECONDS&speed=N&peer=ID"};
  replay_request out;
  std::set<std::string_view> seen;
  while (!query.empty()) {
    auto part = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), part.size() + 1));
    auto key = part.substr(0, part.find('='));
    auto value = part.substr(std::min(part.size(), key.size() + 1));
    if (!seen.insert(key).second)
      return bad;
    if (key == "peer")
      out.as = peer_id::parse(value);
    bool good = key == "peer" ? out.as.has_value()
                : key == "at" ? read_number(value, out.at)
                : key == "speed"
                  ? read_number(value, out.speed) && out.speed >= 0 && out.speed <= speed_max
                  : false;
    if (!good)
      return bad;
  }
  return out;
}

replay::replay(std::shared_ptr<const recording> from, const replay_request& request,
               completion complete)
  : from_(std::move(from)), self_(request.as.value_or(from_->main_peer())),
    began_at_(std::clamp(request.at, from_->begin(), from_->end())), speed_(request.speed),
    complete_(complete), ring_(std::make_shared<event_ring>("replay")),
    stream_(ring_, {[this] { return snapshot(); }, [this] { return vitals(); }, {}}, {}),
    t_(began_at_) {}

std::string replay::next(steady_time now) {
  if (!began_)
    began_ = now;
  auto passed = std::chrono::duration_cast<milliseconds>(now - *began_).count();
  t_ = std::min(from_->end(), began_at_ + passed * speed_);
  advance(t_);
  return stream_.next(now);
}

/// Reads the events up to `to`. After a jump, or where they come too quickly to be seen, only the
/// last rounds and epochs of the time between are shown; everything else is read, and shown.
void replay::advance(std::int64_t to) {
  const auto& events = from_->events();
  auto first = std::exchange(
    done_, static_cast<std::size_t>(
             std::upper_bound(events.begin() + static_cast<std::ptrdiff_t>(done_), events.end(), to,
                              [](std::int64_t t, const auto& event) { return t < event.t; })
             - events.begin()));
  if (first == done_)
    return;
  std::vector<std::pair<std::uint32_t, watch::event_kind>> shown;
  auto show = [&](std::span<const std::uint32_t> places, watch::event_kind kind) {
    for (auto at : places)
      shown.emplace_back(at, kind);
  };
  auto others = within(from_->others(), first, done_);
  for (auto at : others.first(others.size() - newest(others, others_max).size()))
    fold(from_->event(at));
  show(newest(others, others_max), watch::event_kind::other);
  for (const auto& [writer, its] : from_->peers()) {
    bool own = writer == self_;
    if (own)
      show(newest(within(its.rounds, first, done_),
                  first == 0 ? event_ring::rounds_kept : rounds_per_step),
           watch::event_kind::round);
    show(newest(within(its.epochs, first, done_), event_ring::others_kept / 2),
         watch::event_kind::epoch);
  }
  std::sort(shown.begin(), shown.end());
  for (const auto& [at, kind] : shown) {
    auto event = from_->event(at);
    fold(event);
    if (kind == watch::event_kind::epoch && events[at].writer != self_)
      continue;
    event.erase("seq"); // each log has its own: the ring numbers them anew
    auto line = dumped(event);
    ring_->push(watch::kind_of(text_in(event, "type"), text_in(event, "outcome")),
                std::string_view{line}.substr(1, line.size() - 2));
  }
}

replay::json& replay::known(const std::string& id) {
  return known_.try_emplace(id, json::object()).first->second;
}

void replay::fold(const json& event) {
  auto type = text_in(event, "type");
  auto writer = text_in(event, "peer");
  auto& its = known(writer);
  if (type == "start") {
    auto role = text_in(event, "role");
    its["role"] = role;
    its["state"] = role == "node" ? "" : "starting";
    its["version"] = text_in(event, "version");
  } else if (type == "stop") {
    its["state"] = "stopped";
  } else if (type == "phase") {
    copy(its, "state", event, "to");
  } else if (type == "epoch") {
    fold_epoch(its, writer, event);
  }
  if (writer == to_string(self_))
    fold_own(event, type);
}

void replay::fold_epoch(json& its, const std::string& writer, const json& event) {
  constexpr double exact_max = 1LL << 53; // a log may say any number
  copy(its, "epoch", event, "epoch");
  copy(its, "loss", event, "loss");
  auto whole = [&](const char* name) {
    auto x = number_in(event, name).value_or(0);
    return x > 0 && x <= exact_max ? static_cast<std::uint64_t>(x) : 0;
  };
  auto most = furthest();
  auto& pace = paces_[writer];
  auto until = event["t"].get<std::int64_t>();
  pace.epoch = whole("epoch");
  pace.lag = most - std::min(most, pace.epoch);
  pace.epochs = whole("epochs");
  pace.seconds = number_in(event, "duration_s").value_or(0) * static_cast<double>(pace.epochs);
  if (!(pace.seconds > 0) || pace.seconds > 1e9)
    return;
  auto when = [](std::int64_t ms) { return steady_time{milliseconds{ms}}; };
  auto begin = until - static_cast<std::int64_t>(pace.seconds * 1000);
  if (begin > std::exchange(pace.until, until) + 2000) // after a jump, lines are missing
    pace.used = windowed_rate{};
  pace.used.begin(when(begin));
  pace.used.add(static_cast<double>(whole("samples")), when(until));
}

std::uint64_t replay::furthest() const {
  std::uint64_t most = 0;
  for (const auto& [writer, pace] : paces_)
    most = std::max(most, pace.epoch);
  return most;
}

/// What this peer's log says of others.
void replay::fold_own(const json& event, const std::string& type) {
  auto other = text_in(event, "other");
  if (type == "start") {
    here_.clear();
    left_.clear();
    notice_.clear();
  } else if (type == "peer_joined" && !other.empty()) {
    here_.insert(other);
    auto& its = known(other);
    if (!its.contains("role"))
      copy(its, "role", event, "role");
    copy(its, "link", event, "link");
    if (event.contains("address"))
      its["addresses"] = json::array({event["address"]});
    std::erase_if(left_, [&](const json& x) { return x["peer"] == other; });
  } else if (type == "peer_left" && here_.erase(other) > 0) {
    left_.push_front({{"peer", other}, {"t", event["t"]}, {"reason", text_in(event, "reason")}});
    if (left_.size() > left_max)
      left_.pop_back();
  } else if (type == "slow") {
    auto& its = known(other);
    its.erase("slow");
    if (event.contains("cause"))
      its["slow"] = {{"cause", event["cause"]}, {"text", text_in(event, "text")}};
  } else if (type == "notice") {
    notice_ = text_in(event, "text");
  }
}

json replay::peers() const {
  json out{{"peers", json::array()}, {"left", json::array()}};
  for (const auto& [id, its] : known_) {
    bool self = id == to_string(self_);
    if (!self && !here_.contains(id))
      continue;
    json entry{{"id", id}, {"self", self}, {"connected", !self}};
    entry.update(its);
    if (auto known = paces_.find(id); known != paces_.end()) {
      const auto& pace = known->second;
      if (auto rate = pace.used.per_second(steady_time{milliseconds{t_}}))
        entry["samples_per_second"] = *rate;
      // Peers log their epochs once a second, each at another moment: until its next line is
      // overdue, this one is as far behind as it was at its last one.
      auto overdue_ms = 2000 * pace.seconds + 3000;
      entry["epoch"] = static_cast<double>(t_ - pace.until) > overdue_ms
                         ? pace.epoch
                         : std::max(pace.epoch, furthest() - pace.lag);
    }
    out["peers"].push_back(std::move(entry));
  }
  for (const auto& each : left_)
    if (each["t"] >= t_ - left_shown_ms)
      out["left"].push_back(each);
  return out;
}

json replay::status() const {
  json out{{"run_tag", from_->run()}, {"slow", json::array()}, {"notices", json::array()}};
  if (!notice_.empty())
    out["notices"].push_back({{"matter", "settings"}, {"seen", notice_}});
  for (const auto& [id, its] : known_)
    if (auto slow = its.find("slow"); slow != its.end()) {
      out["slow"].push_back(*slow);
      out["slow"].back()["peer"] = id.substr(0, 8);
    }
  if (complete_ != nullptr)
    complete_(out);
  auto self = known_.find(to_string(self_));
  if (self == known_.end())
    return out;
  const auto& own = self->second;
  copy(out, "phase", own, "state");
  for (const auto* key : {"epoch", "loss"})
    copy(out, key, own, key);
  if (auto pace = paces_.find(to_string(self_)); pace != paces_.end())
    if (auto rate = pace->second.used.per_second(steady_time{milliseconds{t_}}))
      out["samples_per_second"] = *rate;
  if (auto most = furthest(); most > 0)
    out["global_epoch"] = most;
  return out;
}

/// The losses until now, of this peer and some others: [[t, peer, loss], …], in order.
json replay::losses() const {
  std::vector<std::uint32_t> places;
  std::size_t others = 0;
  for (const auto& [writer, its] : from_->peers()) {
    auto all = within(its.epochs, 0, done_);
    if (all.empty() || (writer != self_ && ++others >= loss_peers_max))
      continue;
    auto step = (all.size() + losses_per_peer - 1) / losses_per_peer;
    for (std::size_t i = (all.size() - 1) % step; i < all.size();
         i += step) // the last is among them
      places.push_back(all[i]);
  }
  std::sort(places.begin(), places.end());
  auto out = json::array();
  for (auto at : places)
    if (auto event = from_->event(at); event.contains("loss"))
      out.push_back({event["t"], event["peer"], event["loss"]});
  return out;
}

std::string replay::snapshot() const {
  json self{{"peer", to_string(self_)}, {"run", from_->run()}, {"role", nullptr}};
  if (auto own = known_.find(to_string(self_)); own != known_.end()) {
    if (auto role = text_in(own->second, "role"); !role.empty())
      self["role"] = role;
    copy(self, "version", own->second, "version");
  }
  auto writers = json::array();
  for (const auto& [writer, its] : from_->peers())
    writers.push_back(to_string(writer));
  json out{{"v", 1},
           {"now", t_},
           {"self", std::move(self)},
           {"status", status()},
           {"peers", peers()},
           {"loss", losses()},
           {"replay",
            {{"from", from_->begin()},
             {"to", from_->end()},
             {"speed", speed_},
             {"marks", from_->marks()},
             {"peers", std::move(writers)}}}};
  auto line = dumped(out);
  line.pop_back();
  return line + ",\"types\":" + watch::event_types_json();
}

std::string replay::vitals() const {
  return dumped({{"t", t_}, {"status", status()}, {"peers", peers()}});
}

} // namespace waggle
