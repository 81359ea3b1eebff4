#include "runtime/watch/replay_text.hpp"

#include <algorithm>
#include <array>
#include <ctime>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>

#include <fmt/format.h>

#include "runtime/watch/event_text.hpp"
#include "runtime/watch/event_types.hpp"
#include "runtime/watch/json_fields.hpp"

namespace waggle {

namespace {

using json = nlohmann::ordered_json;

constexpr std::size_t spans_max = 48;    // of epochs and rounds
constexpr std::size_t matters_max = 120; // of the rest
constexpr std::int64_t together_ms = 10'000;
constexpr auto clock_form = "%H:%M:%S  ";

struct line {
  std::int64_t t = 0;
  std::string text;
};

/// What several peers say, or what happens several times.
struct matter {
  std::int64_t first = 0;
  std::int64_t last = 0;
  std::map<peer_id, std::size_t> times{}; // by writer
  std::string text{};
  bool problem = false;
};

struct occurrence {
  std::string key; // the same for what is one matter
  matter what;
};

/// Of occurrences in order: those of one key that follow each other within `window` are one.
std::vector<matter> joined(const std::vector<occurrence>& all, std::int64_t window) {
  std::vector<matter> out;
  std::unordered_map<std::string, std::size_t> open;
  for (const auto& [key, what] : all) {
    auto known = open.find(key);
    if (known == open.end() || what.first - out[known->second].last > window) {
      open[key] = out.size();
      out.push_back(what);
      continue;
    }
    auto& its = out[known->second];
    its.last = std::max(its.last, what.last);
    for (const auto& [writer, n] : what.times)
      its.times[writer] += n;
  }
  return out;
}

std::string to_text(const matter& m) {
  std::size_t times = 0;
  for (const auto& [writer, n] : m.times)
    times = std::max(times, n);
  auto who =
    m.times.size() == 1 ? short_name(m.times.begin()->first) : plural(m.times.size(), "peer");
  who.resize(std::max<std::size_t>(who.size(), 8), ' ');
  return time_text(m.first, clock_form) + who + (m.problem ? "  ! " : "    ") + m.text
         + (times > 1
              ? "; " + std::to_string(times) + " times until " + time_text(m.last, "%H:%M:%S")
              : "");
}

struct span_of_time {
  std::uint64_t epoch_min = UINT64_MAX;
  std::uint64_t epoch_max = 0;
  std::map<peer_id, double> losses{}; // the last one of each peer
  std::array<std::size_t, 3> rounds{};
};

/// Complete, shrunk or failed: the worst that a member says of it.
struct round_seen {
  std::size_t outcome = 0;
  const logged_event* at = nullptr;
  std::size_t writers = 0;
};

std::size_t outcome_in(const json& round) {
  auto outcome = text_in(round, "outcome");
  return outcome == "failed" ? 2 : outcome == "shrunk" ? 1 : 0;
}

std::optional<double> mean(const std::map<peer_id, double>& all) {
  double sum = 0;
  for (const auto& [peer, x] : all)
    sum += x;
  return all.empty() ? std::nullopt : std::optional{sum / static_cast<double>(all.size())};
}

/// " 3 shrunk, 1 failed", of rounds.
std::string troubles(const std::array<std::size_t, 3>& rounds) {
  std::string out;
  if (rounds[1] > 0)
    out += ", " + std::to_string(rounds[1]) + " shrunk";
  if (rounds[2] > 0)
    out += ", " + std::to_string(rounds[2]) + " failed";
  return out;
}

json parsed(const logged_event& event) {
  return parse_document(event.line).value_or(nullptr);
}

bool did_not_succeed(const std::string& type, const json& event) {
  const auto* row = watch::find_event_type(type);
  auto outcome = text_in(event, "outcome");
  return (row != nullptr && row->problem && field(event, "ordered") != true)
         || (row != nullptr && watch::kind_of(type, outcome) != row->kind)
         || (type == "round" && outcome_in(event) > 0);
}

/// Reads the events once, in order, and keeps what the text needs.
class reader {
public:
  reader(const timeline& all, const replay_choice& how) : how_(how) {
    for (const auto& event : all.events())
      if (event.t >= how.since)
        read(event, parsed(event));
    if (how.only == "problems")
      add_rounds_in_trouble();
  }

  std::vector<std::string> text(const timeline& all) {
    auto lines = how_.only.empty() ? spans() : std::vector<line>{};
    if (how_.only.empty() || how_.only == "problems")
      add_matters(lines);
    else if (how_.only == "rounds")
      for (const auto& [id, its] : rounds_)
        lines.push_back({its.at->t, text_of(*its.at) + " (" + plural(its.writers, "peer") + ")"});
    else
      for (const auto* event : chosen_)
        lines.push_back({event->t, text_of(*event)});
    std::ranges::stable_sort(lines, {}, &line::t);
    auto out = summary(all);
    for (auto& each : lines)
      out.push_back(std::move(each.text));
    if (lines.empty())
      out.emplace_back("nothing of this kind");
    return out;
  }

private:
  void read(const logged_event& event, const json& in) {
    begin_ = first_ ? event.t : begin_;
    first_ = false;
    end_ = event.t;
    writers_.insert(event.writer);
    if (event.type == "round")
      return read_round(event, in);
    if (event.type == "epoch")
      read_epoch(event, in);
    bool problem = did_not_succeed(event.type, in);
    const auto* row = watch::find_event_type(event.type);
    if (row->group == how_.only && how_.only != "problems")
      chosen_.push_back(&event);
    auto kind = watch::kind_of(event.type, text_in(in, "outcome"));
    if (watch::is_usual(kind) || kind == watch::event_kind::routine
        || (how_.only == "problems" && !problem))
      return;
    auto other = text_in(in, "other");
    count(event, in, other);
    auto text = event_text(in);
    auto key = event.type + (other.empty() ? to_string(event.writer) : other);
    for (auto c : text) // its numbers may differ
      if (c < '0' || c > '9')
        key += c;
    occurrences_.push_back(
      {std::move(key), {event.t, event.t, {{event.writer, 1}}, std::move(text), problem}});
  }

  void read_round(const logged_event& event, const json& in) {
    auto& its = rounds_[text_in(in, "round")];
    auto outcome = outcome_in(in);
    if (its.at == nullptr || outcome > its.outcome)
      its.at = &event;
    its.outcome = std::max(its.outcome, outcome);
    ++its.writers;
  }

  void read_epoch(const logged_event& event, const json& in) {
    auto& span = spans_[event.t / 1000];
    auto epoch =
      static_cast<std::uint64_t>(std::clamp(number_in(in, "epoch").value_or(0), 0.0, 9e15));
    span.epoch_min = std::min(span.epoch_min, epoch);
    span.epoch_max = std::max(span.epoch_max, epoch);
    if (auto loss = number_in(in, "loss")) {
      span.losses[event.writer] = *loss;
      first_loss_.emplace(event.writer, *loss);
      last_loss_[event.writer] = *loss;
    }
  }

  /// Who left, and splits: what is said within a while is one.
  void count(const logged_event& event, const json& in, const std::string& other) {
    if (event.type == "peer_left" && field(in, "ordered") != true) {
      auto [known, is_new] = left_.try_emplace(other, event.t);
      leaves_ += is_new || event.t - known->second > together_ms ? 1 : 0;
      known->second = event.t;
    }
    auto text = text_in(in, "text");
    if (event.type == "split" && !text.starts_with("not ") && !text.ends_with("history again")) {
      splits_ += splits_ == 0 || event.t - split_ > 6 * together_ms ? 1 : 0;
      split_ = event.t;
    }
  }

  void add_rounds_in_trouble() {
    for (const auto& [id, its] : rounds_)
      if (its.outcome > 0) {
        auto in = parsed(*its.at);
        auto reason = text_in(in, "reason");
        std::string text = its.outcome == 2 ? "A round failed" : "A round lost a member";
        auto key = text + reason;
        std::erase_if(key, [](char c) { return c >= '0' && c <= '9'; });
        occurrences_.push_back({key,
                                {its.at->t,
                                 its.at->t,
                                 {{its.at->writer, 1}},
                                 text + (reason.empty() ? "" : ": " + reason),
                                 true}});
      }
    std::ranges::stable_sort(occurrences_, {}, [](const auto& x) { return x.what.first; });
  }

  void add_matters(std::vector<line>& lines) const {
    auto window = together_ms;
    auto all = joined(occurrences_, window);
    for (; all.size() > matters_max && window <= end_ - begin_; window *= 3)
      all = joined(occurrences_, 3 * window);
    auto shown = std::min(all.size(), matters_max);
    // Not of std::ranges: clang 14 cannot compile what libstdc++ has of it.
    std::stable_partition(all.begin(), all.end(), std::mem_fn(&matter::problem));
    for (std::size_t i = 0; i < shown; ++i)
      lines.push_back({all[i].first, to_text(all[i])});
    if (shown < all.size())
      lines.push_back({end_, "and " + plural(all.size() - shown, "other event")
                               + "; --only peers, run or problems, or --json, has more"});
  }

  /// Epochs and rounds by spans of equal length.
  [[nodiscard]] std::vector<line> spans() const {
    constexpr std::int64_t seconds[]{1,   2,   5,    10,   30,   60,     120,    300,
                                     600, 900, 1800, 3600, 7200, 21'600, 86'400, 604'800};
    auto enough = std::ranges::find_if(seconds, [&](auto s) {
      return (end_ - begin_) / (1000 * s) < static_cast<std::int64_t>(spans_max) - 1;
    });
    auto length = enough != std::end(seconds) ? 1000 * *enough : end_ - begin_;
    std::map<std::int64_t, span_of_time> all;
    for (const auto& [second, its] : spans_) {
      auto& span = all[second * 1000 / length];
      span.epoch_min = std::min(span.epoch_min, its.epoch_min);
      span.epoch_max = std::max(span.epoch_max, its.epoch_max);
      for (const auto& [peer, loss] : its.losses)
        span.losses[peer] = loss;
    }
    for (const auto& [id, its] : rounds_)
      ++all[its.at->t / length].rounds[its.outcome];
    std::vector<line> out;
    for (const auto& [n, its] : all) {
      auto rounds = its.rounds[0] + its.rounds[1] + its.rounds[2];
      std::string text = time_text(std::max(begin_, n * length), clock_form) + "            ";
      if (its.epoch_max > 0)
        text += its.epoch_min == its.epoch_max ? "epoch " + std::to_string(its.epoch_max)
                                               : "epochs " + std::to_string(its.epoch_min) + " to "
                                                   + std::to_string(its.epoch_max);
      if (auto loss = mean(its.losses))
        text += fmt::format(", loss {:.3g}", *loss);
      if (rounds > 0)
        text += (its.epoch_max > 0 ? ", " : "") + plural(rounds, "round") + troubles(its.rounds);
      out.push_back({std::max(begin_, n * length), std::move(text)});
    }
    return out;
  }

  [[nodiscard]] std::vector<std::string> summary(const timeline& all) const {
    std::array<std::size_t, 3> rounds{};
    for (const auto& [id, its] : rounds_)
      ++rounds[its.outcome];
    std::uint64_t from = UINT64_MAX, to = 0;
    for (const auto& [second, its] : spans_) {
      from = std::min(from, its.epoch_min);
      to = std::max(to, its.epoch_max);
    }
    auto run = all.run();
    auto head = (run.empty() ? "" : "run " + run + ", ") + plural(writers_.size(), "log") + ", "
                + time_text(begin_, "%Y-%m-%d %H:%M:%S to ") + time_text(end_, "%H:%M:%S %Z") + " ("
                + span_text(static_cast<double>(end_ - begin_)) + ")";
    std::string sums = plural(left_.size(), "peer") + " left";
    if (leaves_ > left_.size())
      sums += " (" + std::to_string(leaves_) + " times)";
    sums += ", " + plural(splits_, "split") + ", "
            + plural(rounds[0] + rounds[1] + rounds[2], "round") + troubles(rounds);
    if (to > 0)
      sums += ", epochs " + std::to_string(from) + " to " + std::to_string(to);
    auto first = mean(first_loss_);
    auto last = mean(last_loss_);
    if (first && last)
      sums += fmt::format(", loss {:.3g} → {:.3g}", *first, *last);
    return {head, sums, ""};
  }

  const replay_choice& how_;
  bool first_ = true;
  std::int64_t begin_ = 0, end_ = 0;
  std::set<peer_id> writers_;
  std::map<std::string, round_seen> rounds_;
  std::map<std::int64_t, span_of_time> spans_; // of each second
  std::map<peer_id, double> first_loss_, last_loss_;
  std::vector<occurrence> occurrences_;
  std::vector<const logged_event*> chosen_;
  std::map<std::string, std::int64_t> left_; // when last
  std::size_t leaves_ = 0, splits_ = 0;
  std::int64_t split_ = 0;
};

} // namespace

bool is_wanted(const replay_choice& how, const logged_event& event) {
  if (event.t < how.since)
    return false;
  if (how.only.empty())
    return true;
  if (how.only == "problems")
    return did_not_succeed(event.type, parsed(event));
  const auto* row = watch::find_event_type(event.type);
  return row != nullptr && row->group == how.only;
}

std::vector<std::string> replay_text(const timeline& all, const replay_choice& how) {
  return reader{all, how}.text(all);
}

result<std::int64_t> time_within(std::string_view text, std::int64_t from, std::int64_t to) {
  auto between = "these logs go from " + time_text(from, "%Y-%m-%d %H:%M:%S to ")
                 + time_text(to, "%Y-%m-%d %H:%M:%S");
  std::tm wanted{};
  std::time_t begin = from / 1000;
  ::localtime_r(&begin, &wanted);
  wanted.tm_sec = 0;
  std::string given{text};
  bool dated = false;
  const char* end = nullptr;
  for (const auto* form : {"%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M",
                           "%Y-%m-%dT%H:%M", "%H:%M:%S", "%H:%M"}) {
    auto attempt = wanted;
    end = ::strptime(given.c_str(), form, &attempt);
    if (end == nullptr || *end != '\0') {
      end = nullptr;
      continue;
    }
    wanted = attempt;
    dated = form[1] == 'Y';
    break;
  }
  if (end == nullptr)
    return failure{ec::bad_config,
                   "is no time: use 02:00, 02:00:30 or 2026-11-29T02:00, in local time; "
                     + between};
  // A time of day: the last one in these logs, or else the one that is next to them.
  constexpr std::int64_t day_ms = 86'400'000;
  std::int64_t found = 0;
  auto distance = INT64_MAX;
  for (int days = dated ? 0 : -1; days <= (dated ? 0 : (to - from) / day_ms + 2); ++days) {
    auto day = wanted;
    day.tm_mday += days;
    day.tm_isdst = -1;
    auto at = static_cast<std::int64_t>(std::mktime(&day)) * 1000;
    if (dated && day.tm_mday != wanted.tm_mday)
      return failure{ec::bad_config, "is a day that its month does not have; " + between};
    if (auto off = std::max({from - at, at - to, std::int64_t{0}}); off <= distance) {
      distance = off;
      found = at;
    }
  }
  if (found > to)
    return failure{ec::bad_config, "is after the last event: " + between};
  return std::max(found, from);
}

} // namespace waggle
