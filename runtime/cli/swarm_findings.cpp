#include "runtime/cli/swarm_findings.hpp"

#include <algorithm>
#include <map>
#include <set>

#include <spdlog/fmt/fmt.h>

#include "runtime/cli/readable.hpp"
#include "runtime/core/endpoint.hpp"
#include "runtime/core/named.hpp"
#include "runtime/watch/event_text.hpp"
#include "runtime/watch/json_fields.hpp"
#include "runtime/watch/timeline.hpp"

namespace waggle {

namespace {

using level = finding::level;
using json = nlohmann::ordered_json;

constexpr std::size_t text_max = 400; // of what a peer wrote
constexpr std::int64_t recent_ms = 600'000;

std::string clean(const std::string& text) {
  return without_control_characters(text, text_max);
}

std::vector<endpoint> addresses_in(const json& of) {
  std::vector<endpoint> out;
  if (const auto all = field(of, "addresses"); all.is_array())
    for (const auto& each : all)
      if (auto parsed = parse_endpoint(each.is_string() ? each.get<std::string>() : "");
          parsed && out.size() < addresses_max)
        out.push_back(*parsed);
  return out;
}

std::optional<seen_leaving> leaving_in(const json& of, std::int64_t now) {
  auto t = number_in(of, "t").value_or(0);
  if (!(t >= static_cast<double>(now - recent_ms)) || t > 4.2e12)
    return std::nullopt;
  auto times = number_in(of, "times").value_or(1);
  return seen_leaving{
    static_cast<std::int64_t>(t), clean(text_in(of, "reason")), field(of, "lost") != false,
    times >= 1 && times < 1e9 ? static_cast<std::uint64_t>(times) : 1, text_in(of, "code")};
}

/// Why a peer does not answer, as far as it can be told from here.
struct silence {
  std::string_view matter;
  bool certain; // it does not come from this machine's view
  std::string seen;
};
silence judge_silence(const asked_member& member) {
  auto where = to_string(member.addresses.front());
  if (member.why.code == ec::timeout)
    return {"frozen", true,
            where
              + " takes connections and does not answer: its process is frozen (stopped, or "
                "swapping), or its machine is overloaded"};
  if (member.why.code == ec::peer_lost)
    return {"ended", !member.connected,
            "nothing listens at " + where + " any more: its process has ended"};
  return {"silent", false, where + " does not answer from here (" + clean(member.why.detail) + ")"};
}

class judge {
public:
  judge(const std::vector<asked_member>& members, std::int64_t now)
    : members_(members), now_(now) {}

  std::vector<finding> all() {
    for (const auto& member : members_)
      if (!member.left)
        note_run(member);
    for (const auto& member : members_)
      member.left ? judge_left(member) : judge_member(member);
    // Whoever lost most of its group to processes that ended cannot tell it from a cut; we can.
    if (dead_ == 0 || lost_ > dead_)
      of_peers_.insert(of_peers_.end(), cut_off_.begin(), cut_off_.end());
    std::vector<finding> out;
    out.push_back(
      {answered_ > 0 ? level::good : level::bad,
       "peers",
       plural(answered_, "peer") + " of " + plural(count_, "peer") + " answer"
         + (clients_ > 0 ? "; " + std::to_string(clients_) + " are clients, which nobody can ask"
                         : std::string{}),
       {}});
    if (histories_.size() > 1)
      out.push_back({level::bad, "split", "the run has split into histories: " + parts(histories_),
                     std::string{symptom_of("histories").cure}});
    else if (!histories_.empty())
      out.push_back({level::good, "history", "all that train hold one history", {}});
    if (versions_.size() > 1)
      out.push_back({level::warning, "version", "peers run different versions: " + parts(versions_),
                     std::string{symptom_of("version").cure}});
    out.insert(out.end(), of_peers_.begin(), of_peers_.end());
    return out;
  }

private:
  using values = std::map<std::string, std::set<std::string>>; // peers, by value
  static std::string parts(const values& all) {
    std::string text;
    for (const auto& [value, who] : all)
      text += (text.empty() ? "" : "; ") + value + ": " + joined({who.begin(), who.end()}, ", ");
    return text;
  }
  static std::string short_id(const asked_member& member) { return member.id.substr(0, 8); }
  static json status_of(const asked_member& member) {
    return parse_document(member.status).value_or(nullptr);
  }
  void add(level how, std::string check, std::string seen, std::string_view cure) {
    of_peers_.push_back({how, std::move(check), std::move(seen), std::string{cure}});
  }

  void note_run(const asked_member& member) {
    if (auto tag = text_in(status_of(member), "run_tag"); !tag.empty())
      runs_.insert(tag);
  }
  void note_values(const asked_member& member, const json& status) {
    if (auto history = clean(text_in(status, "history")); !history.empty())
      histories_[history].insert(short_id(member));
    versions_[clean(text_in(status, "version"))].insert(short_id(member));
  }

  /// Whether somebody has seen this member leave, which says more than that others still list it.
  bool is_among_left(const asked_member& member) const {
    return !member.was_away && std::ranges::any_of(members_, [&](const auto& other) {
      return other.id == member.id && other.left;
    });
  }

  void judge_member(const asked_member& member) {
    auto status = status_of(member);
    if (!status.is_object() && is_among_left(member))
      return;
    ++count_;
    auto name = "peer " + short_id(member);
    if (member.was_away)
      add(level::warning, "left",
          name + " left " + to_text(*member.was_away, now_) + "; it is back",
          symptom_of("left").cure);
    if (member.addresses.empty()) {
      ++clients_;
      return;
    }
    if (!status.is_object()) {
      auto why = judge_silence(member);
      return add(why.certain ? level::bad : level::warning, "peer", name + ": " + why.seen,
                 symptom_of(why.matter).cure);
    }
    ++answered_;
    note_values(member, status);
    judge_status(name, status);
  }

  void judge_status(const std::string& name, const json& status) {
    constexpr std::string_view itself = "this peer";
    for (const auto& [row, what, says] : symptoms_in(status)) {
      bool bad = row->how == level::bad;
      auto& to = what.matter == "split" ? cut_off_ : of_peers_;
      to.push_back({row->how, bad ? what.matter : "notice",
                    name
                      + (what.seen.starts_with(itself) ? clean(what.seen.substr(itself.size()))
                                                       : ": " + clean(what.seen)),
                    clean(what.cure)});
    }
    if (auto tried = status.find("punches"); tried != status.end() && tried->is_array())
      for (const auto& each : *tried)
        if (auto seen = clean(text_in(each, "seen")); !seen.empty()) {
          auto cure = clean(text_in(each, "cure"));
          add(cure.empty() ? level::good : level::warning, "routers", name + ": " + seen, cure);
        }
    if (auto why = clean(text_in(status, "waiting_for")); !why.empty())
      add(level::warning, "waiting", name + " waits for " + why, {});
  }

  void judge_left(const asked_member& member) {
    auto name = "peer " + short_id(member);
    lost_ += member.left->lost ? 1 : 0;
    auto when = " " + to_text(*member.left, now_);
    auto status = status_of(member);
    bool itself = status.is_object() && runs_.contains(text_in(status, "run_tag"))
                  && text_in(status, "peer") == member.id;
    if (itself) {
      bool counted = std::ranges::any_of(members_, [&](const auto& other) {
        return !other.left && other.id == member.id; // for a peer that has not lost it
      });
      count_ += counted ? 0 : 1;
      answered_ += counted ? 0 : 1;
      note_values(member, status);
      auto uptime = number_in(status, "uptime_seconds").value_or(0);
      bool restarted = uptime * 1000 < static_cast<double>(now_ - member.left->t);
      if (!member.left->lost || member.left->code == "overloaded")
        return; // not everybody has a link with everybody
      if (restarted)
        return add(level::warning, "left",
                   name + " left" + when + ", was started again, and is not connected yet", {});
      return add(level::bad, "split",
                 name + " was lost" + when + "; it runs, and answers here at "
                   + to_string(member.addresses.front()),
                 symptom_of("away").cure);
    }
    if (!member.left->lost)
      return add(level::good, "left", name + " left" + when, {});
    if (status.is_object())
      return add(level::good, "left",
                 name + " was lost" + when + "; another peer is at its address now", {});
    if (member.addresses.empty())
      return add(level::bad, "lost", name + ", a client, was lost" + when,
                 symptom_of("ended").cure);
    auto why = judge_silence(member);
    dead_ += member.why.code == ec::timeout || member.why.code == ec::peer_lost ? 1 : 0;
    add(level::bad, "lost", name + " was lost" + when + "; " + why.seen,
        symptom_of(why.matter).cure);
  }

  const std::vector<asked_member>& members_;
  const std::int64_t now_;
  std::set<std::string> runs_; // tags
  values histories_, versions_;
  std::size_t answered_ = 0, clients_ = 0, count_ = 0;
  std::size_t lost_ = 0,
              dead_ = 0; // without a goodbye; of these, ended or frozen as seen from here
  std::vector<finding> of_peers_, cut_off_;
};

} // namespace

std::string to_text(const seen_leaving& left, std::int64_t now) {
  auto age = static_cast<double>(std::max<std::int64_t>(0, now - left.t)) / 1000;
  return fmt::format("at {} ({} ago{}): {}", time_text(left.t, "%H:%M:%S"), readable_duration(age),
                     left.times > 1 ? fmt::format(", {} times in all", left.times) : "",
                     left.reason.empty() ? "no reason is known" : left.reason);
}

std::vector<std::pair<std::string, seen_leaving>> departures_in(const json& peers, bool back,
                                                                std::int64_t now) {
  std::vector<std::pair<std::string, seen_leaving>> out;
  auto all = field(peers, back ? "peers" : "left");
  if (all.is_array())
    for (const auto& each : all)
      if (auto left = leaving_in(back ? field(each, "left") : each, now))
        if (auto id = text_in(each, back ? "id" : "peer"); !id.empty())
          out.emplace_back(clean(id), *left);
  return out;
}

std::vector<asked_member> members_in(const json& peers, const endpoint& where, std::size_t max,
                                     std::int64_t now) {
  std::vector<asked_member> out;
  if (auto all = field(peers, "peers"); all.is_array())
    for (const auto& each : all) {
      if (!each.is_object() || out.size() >= max)
        continue;
      auto& member = out.emplace_back();
      bool self = field(each, "self") == true;
      member.id = clean(text_in(each, "id"));
      member.addresses = addresses_in(each);
      member.connected = self || field(each, "connected") == true;
      if (self && member.addresses.empty())
        member.addresses.push_back(where);
      member.was_away = leaving_in(field(each, "left"), now);
    }
  auto members = out.size();
  if (auto all = field(peers, "left"); all.is_array())
    for (const auto& each : all)
      if (auto left = leaving_in(each, now); left && out.size() < members + max) {
        auto& member = out.emplace_back();
        member.id = clean(text_in(each, "peer"));
        member.addresses = addresses_in(each);
        member.left = left;
      }
  return out;
}

std::vector<finding> judge_swarm(const std::vector<asked_member>& members, std::int64_t now) {
  return judge{members, now}.all();
}

} // namespace waggle
