#include "runtime/cli/examine_swarm.hpp"

#include <algorithm>
#include <future>

#include "runtime/cli/commands.hpp"
#include "runtime/cli/finding_report.hpp"
#include "runtime/net/http_client.hpp"
#include "runtime/watch/events.hpp"
#include "runtime/watch/json_fields.hpp"

namespace waggle {

namespace {

constexpr auto page_timeout = 2s;
constexpr std::size_t members_asked_max = 64;

/// A member that is lost for one may be there for another, which matters: both are kept.
void add_members(std::vector<asked_member>& all, std::vector<asked_member> more) {
  for (auto& each : more)
    if (!each.id.empty() && all.size() < 2 * members_asked_max
        && std::ranges::none_of(all, [&](const auto& known) {
             return known.id == each.id && known.left.has_value() == each.left.has_value();
           }))
      all.push_back(std::move(each));
}

} // namespace

std::vector<std::string> ask_members(std::vector<asked_member>& members, std::size_t first,
                                     const std::optional<swarm_key>& key, bool encrypted) {
  std::vector<std::string> peers(members.size());
  auto ask_one = [&](std::size_t i) {
    auto& member = members[i];
    for (const auto& at : member.addresses) {
      auto status = net::http_get(at, "/api/v1/status", page_timeout, key, encrypted);
      if (status && status->status == 200) {
        member.status = status->body;
        if (auto others = net::http_get(at, "/api/v1/peers", page_timeout, key, encrypted);
            others && others->status == 200)
          peers[i] = others->body;
        return;
      }
      member.why = status ? failure{ec::malformed, "another program answers"} : status.error();
    }
  };
  constexpr std::size_t at_once = 16;
  for (std::size_t begin = first; begin < members.size(); begin += at_once) {
    std::vector<std::future<void>> asked;
    for (auto i = begin; i < std::min(members.size(), begin + at_once); ++i)
      asked.push_back(std::async(std::launch::async, ask_one, i));
  }
  return peers;
}

int examine_swarm(const run_options& options, const endpoint& where) {
  int code = exit_clean;
  auto said = documents_of(where, options, code);
  if (!said)
    return code;
  auto now = watch::unix_ms(system_wall_clock{}.now());
  std::vector<asked_member> members;
  add_members(members, members_in(said->peers, where, members_asked_max, now));
  // Those that these have lost, and behind a split their members, are asked, too.
  for (std::size_t asked = 0; asked < members.size();) {
    auto seen = ask_members(members, std::exchange(asked, members.size()), options.key,
                            asks_encrypted(options));
    for (std::size_t i = 0; i < seen.size(); ++i)
      if (auto others = parse_document(seen[i]))
        add_members(members,
                    members_in(*others, members[i].addresses.front(), members_asked_max, now));
  }
  finding_report out{options.json};
  out.add(judge_swarm(members, now));
  return out.end();
}

} // namespace waggle
