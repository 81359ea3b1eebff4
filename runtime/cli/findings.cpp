#include "runtime/cli/findings.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "runtime/cli/readable.hpp"
#include "runtime/core/bytes.hpp"
#include "runtime/net/dial_policy.hpp"
#include "runtime/net/refusals.hpp"
#include "runtime/watch/json_fields.hpp"

namespace waggle {

namespace {

using level = finding::level;
using json = nlohmann::ordered_json;

constexpr std::size_t text_max = 400; // of what a peer wrote

std::string_view name_of(level how) {
  constexpr std::string_view names[]{"good", "warning", "bad"};
  return names[static_cast<std::size_t>(how)];
}

std::string listed(const std::set<std::string>& all) {
  std::string out;
  for (const auto& each : all)
    out += (out.empty() ? "" : ", ") + each;
  return out;
}

bool is_loopback(const endpoint& where) {
  return net::kind_of(where.host) == net::host_kind::loopback;
}

/// "10.0.0.1:7700", or "seed:7700 (10.0.0.1:7700)".
std::string place(const endpoint& given, const endpoint& where) {
  return given == where ? to_string(where) : to_string(given) + " (" + to_string(where) + ")";
}

} // namespace

std::string to_line(const finding& f) {
  auto padded = [](std::string_view text, std::size_t width) {
    std::string out{text};
    out.resize(std::max(width, out.size()), ' ');
    return out;
  };
  return padded(name_of(f.how), 9) + padded(f.check, 14)
         + without_control_characters(f.seen, 2 * text_max)
         + (f.cure.empty() ? std::string{}
                           : "\n" + std::string(23, ' ') + "→ "
                               + without_control_characters(f.cure, 2 * text_max));
}

std::string to_json(const std::vector<finding>& all) {
  auto out = json::array();
  for (const auto& f : all)
    out.push_back({{"check", f.check},
                   {"level", name_of(f.how)},
                   {"seen", f.seen},
                   {"cure", f.cure.empty() ? json(nullptr) : json(f.cure)}});
  return out.dump(2, ' ', true, json::error_handler_t::replace);
}

bool any_bad(const std::vector<finding>& all) {
  return std::any_of(all.begin(), all.end(), [](const finding& f) { return f.how == level::bad; });
}

// -- this machine

std::vector<finding> judge_folder(const folder_facts& facts) {
  std::vector<finding> out;
  auto name = facts.folder.string();
  if (!facts.trouble.empty())
    out.push_back({level::bad, "data folder", name + ": " + facts.trouble,
                   "give --data-dir a folder in which this user may write"});
  else if (facts.running)
    out.push_back({level::warning, "data folder",
                   name + " is used by the peer that runs at " + to_string(*facts.running),
                   "for a second peer give --data-dir another folder"});
  else if (facts.locked)
    out.push_back({level::bad, "data folder", name + " is locked by another process",
                   "stop the peer that uses it, or give --data-dir another folder"});
  else
    out.push_back(
      {level::good, "data folder", name + (facts.exists ? " can be written" : " can be made"), {}});
  if (facts.key_open)
    out.push_back({level::bad, "key", "other users may read " + *facts.key_open,
                   "chmod 600 " + *facts.key_open
                     + "; if somebody may have read it, delete it: the peer makes a new one"});
  if (facts.open_to_others)
    out.push_back({level::warning, "data folder", *facts.open_to_others, "chmod go-w " + name});
  if (facts.trouble.empty()) {
    auto room = readable_bytes(static_cast<double>(facts.free_bytes)) + " are free in " + name;
    bool full = facts.free_bytes < 64_MiB;
    if (full || facts.free_bytes < 1_GiB)
      out.push_back({full ? level::bad : level::warning, "disk", room,
                     "make room: two checkpoints of the model, its statistics included, and states "
                     "on their way are kept there"});
    else
      out.push_back({level::good, "disk", room, {}});
  }
  return out;
}

finding judge_descriptors(std::uint64_t soft, std::uint64_t hard) {
  // 256 links of peers and as many of HTTP, files, shared memory of peers on this host.
  constexpr std::uint64_t comfortable = 1024, least = 256;
  auto seen = std::to_string(soft) + " open files are allowed";
  if (soft >= comfortable)
    return {level::good, "descriptors", seen, {}};
  return {soft < least ? level::bad : level::warning, "descriptors", seen,
          hard > soft
            ? "ulimit -n " + std::to_string(std::min<std::uint64_t>(hard, 65'536))
            : "raise the limit in /etc/security/limits.conf, or LimitNOFILE= of the service"};
}

finding judge_memory(std::uint64_t available) {
  auto seen = readable_bytes(static_cast<double>(available)) + " of memory are available";
  if (available >= 512_MiB)
    return {level::good, "memory", seen, {}};
  return {available < 128_MiB ? level::bad : level::warning, "memory", seen,
          "a trainer needs about 150 MB and eight times the size of the parameters; end other "
          "programs, or raise the limit of the container"};
}

finding judge_port(const endpoint& where, const failure& why, const std::optional<endpoint>& own) {
  if (why.code == ec::none)
    return {level::good, "port", to_string(where) + " is free", {}};
  if (own && own->port == where.port)
    return {level::good, "port", to_string(where) + " is that of the running peer: not tried", {}};
  return {level::bad, "port", why.detail,
          "stop the program that uses it (ss -ltnp names it), or choose another with --listen"};
}

std::optional<finding> judge_loopback(const std::vector<endpoint>& listen,
                                      const std::vector<endpoint>& announce,
                                      const std::vector<endpoint>& initial_peers) {
  auto all_loopback = [](const std::vector<endpoint>& all) {
    return !all.empty() && std::all_of(all.begin(), all.end(), is_loopback);
  };
  bool others = std::any_of(initial_peers.begin(), initial_peers.end(),
                            [](const endpoint& where) { return !is_loopback(where); });
  if (!others || !(all_loopback(listen) || all_loopback(announce)))
    return std::nullopt;
  return finding{level::bad, "address",
                 "this peer is reached over loopback only, and initial peers are on other machines",
                 all_loopback(listen)
                   ? "leave --listen out, or give it an address of the network"
                   : "announce an address that other machines reach, or leave --announce out"};
}

// -- initial peers

finding judge_name(const endpoint& given, const failure& why) {
  if (why.code == ec::none)
    return {level::good, "name", given.host + " resolves", {}};
  return {level::bad, "name", given.host + ": " + why.detail,
          "correct the name in --initial-peers, or give the address itself"};
}

finding judge_dial(const endpoint& given, const endpoint& where, const failure& why,
                   const std::optional<peer_id>& met) {
  auto at = place(given, where);
  if (why.code == ec::none)
    return {level::good,
            "initial peer",
            at + " is peer " + (met ? short_name(*met) : "?") + " of this run; it accepts this one",
            {}};
  auto detail = without_control_characters(why.detail, text_max);
  auto bad = [&](std::string seen, std::string cure) {
    return finding{level::bad, "initial peer", at + ": " + std::move(seen), std::move(cure)};
  };
  switch (why.code) {
    case ec::timeout:
      return bad("no answer within the time: a firewall may drop packets",
                 "open that TCP port on its machine and in front of it; or its machine is off");
    case ec::unreachable:
      return bad("nothing accepts connections (" + detail + ")",
                 "start the peer, or correct the address; is its port the one of --listen?");
    case ec::wrong_run:
      return bad("a peer of another run", "give the same --run-id as its peers");
    case ec::wrong_version:
      if (detail.starts_with(net::not_a_peer))
        return bad("another program answers there: " + detail,
                   "correct the address in --initial-peers");
      return bad("a peer of another version (" + detail + ")",
                 "use the same version of waggle on all peers");
    case ec::agreement_mismatch:
      return bad("its options differ: " + detail,
                 "start this peer with the join line that the run's peers print");
    case ec::clock_skew:
      return {level::bad, "clock", at + ": " + detail,
              "set this machine's clock, or the peer's (e.g. with chrony)"};
    case ec::duplicate_identity:
      return {net::started_wrongly(why) ? level::bad : level::warning, "initial peer",
              at + ": " + (net::started_wrongly(why) ? detail : "leads to this peer itself"),
              net::started_wrongly(why) ? "give each peer its own --data-dir"
                                        : "name another peer, too, unless this one starts the run"};
    case ec::malformed:
    case ec::protocol_violation:
      return bad("another program answers there, no waggle peer (" + detail + ")",
                 "correct the address in --initial-peers");
    case ec::overloaded:
    case ec::rate_limited:
      return {level::warning, "initial peer", at + ": " + detail,
              "try again in a minute, or name further peers"};
    default:
      return bad(std::string{to_string(why.code)} + ": " + detail, "see the log of that peer");
  }
}

finding judge_clock(const endpoint& where, swarm_clock::duration offset, net::clock_limits limits) {
  auto apart = std::chrono::duration_cast<std::chrono::duration<double>>(
                 offset < swarm_clock::duration{0} ? -offset : offset)
                 .count();
  auto side = offset < swarm_clock::duration{0} ? "behind" : "ahead of";
  auto seen = "the clock of " + to_string(where) + " is at least " + readable_duration(apart) + " "
              + side + " this one's";
  auto refused = seconds_of(limits.refused);
  if (apart < seconds_of(limits.noticeable))
    return {level::good, "clock", "that of " + to_string(where) + " agrees with this one's", {}};
  return {apart >= refused ? level::bad : level::warning, "clock", seen,
          "set the clocks (e.g. with chrony); " + readable_duration(refused)
            + " apart peers refuse each other"};
}

finding judge_dial_back(const endpoint& through, const std::vector<std::uint16_t>& announced,
                        ec outcome) {
  std::set<std::string> ports;
  for (auto port : announced)
    ports.insert(std::to_string(port));
  auto port = "port " + listed(ports);
  if (outcome == ec::none)
    return {
      level::good, "dial back", to_string(through) + " reaches " + port + " of this machine", {}};
  if (outcome == ec::overloaded)
    return {level::warning, "dial back",
            to_string(through) + " has not tried: it dials back only so often",
            "run this again in a minute"};
  return {level::bad, "dial back",
          to_string(through) + " does not reach " + port + " of this machine ("
            + std::string{to_string(outcome)} + ")",
          "open or forward that port, or announce the one that is open: --announce HOST:PORT; "
          "otherwise use --client-mode"};
}

finding judge_path(const endpoint& where, bool small_passed, bool large_sent, bool large_received) {
  if (!small_passed)
    return {level::warning, "path", to_string(where) + " does not answer HTTP: not tried", {}};
  if (large_sent && large_received)
    return {level::good, "path", "large messages pass to and from " + to_string(where), {}};
  auto way = large_sent ? "from " : large_received ? "to " : "to and from ";
  return {level::bad, "path",
          "small messages pass, large ones do not, " + std::string{way} + to_string(where)
            + ": something on the path drops large packets",
          "lower the MTU of this machine's interface (ip link set dev IFACE mtu 1280), or let ICMP "
          "\"fragmentation needed\" pass"};
}

std::optional<finding> judge_versions(const std::string& own,
                                      const std::vector<std::pair<endpoint, std::string>>& theirs) {
  for (const auto& [where, version] : theirs)
    if (version != own)
      return finding{level::warning, "version",
                     to_string(where) + " runs waggle "
                       + without_control_characters(version, text_max) + ", this is " + own,
                     "use one version on all peers"};
  return std::nullopt;
}

// -- a running swarm

std::vector<asked_member> lost_members(const std::string& targets, std::size_t max) {
  std::vector<asked_member> out;
  auto all = parse_document(targets);
  if (!all || !all->is_array())
    return out;
  for (const auto& each : *all) {
    const auto labels = field(each, "labels");
    if (text_in(labels, "role") != "lost" || text_in(labels, "run").empty())
      continue;
    const auto where = field(each, "targets");
    if (!where.is_array() || where.empty() || !where.front().is_string() || out.size() >= max)
      continue;
    if (auto parsed = parse_endpoint(where.front().get<std::string>()))
      out.push_back({text_in(labels, "peer"), {*parsed}, {}, {}, text_in(labels, "run")});
  }
  return out;
}

namespace {

/// Whether this is the status of the peer that was lost.
bool is_of(const json& status, const asked_member& lost) {
  return field(status, "run_tag") == lost.lost_from && text_in(status, "peer").starts_with(lost.id);
}

} // namespace

std::vector<finding> judge_swarm(const std::vector<asked_member>& members) {
  std::vector<finding> out;
  std::map<std::string, std::set<std::string>> histories, versions; // peers, by value
  std::size_t answered = 0, clients = 0, count = members.size();
  std::vector<finding> of_peers;
  for (const auto& member : members) {
    auto name = "peer " + member.id.substr(0, 8);
    if (member.addresses.empty()) {
      ++clients;
      continue;
    }
    auto status = parse_document(member.status).value_or(nullptr);
    if (!member.lost_from.empty() && !is_of(status, member)) {
      --count; // it has ended, or its address is another peer's
      continue;
    }
    if (!status.is_object()) {
      of_peers.push_back({level::warning, "peer",
                          name + " at " + to_string(member.addresses.front())
                            + " does not answer from here ("
                            + without_control_characters(member.why.detail, text_max) + ")",
                          "if other peers do not reach it either: open that port, or announce "
                          "another address there; otherwise only this machine is shut out"});
      continue;
    }
    ++answered;
    auto text = [&](const char* field) {
      return without_control_characters(text_in(status, field), text_max);
    };
    if (auto history = text("history"); !history.empty())
      histories[history].insert(member.id.substr(0, 8));
    versions[text("version")].insert(member.id.substr(0, 8));
    if (auto differing = number_in(status, "differing_peers").value_or(0); differing > 0)
      of_peers.push_back({level::bad, "parameters",
                          name + " holds other parameters than " + readable_number(differing)
                            + " of the peers at its epoch",
                          "it downloads a state by itself; if this stays, restart it with an empty "
                          "--data-dir"});
    if (auto notice = text("notice"); !notice.empty())
      of_peers.push_back({level::warning, "notice", name + ": " + notice, {}});
    if (auto why = text("waiting_for"); !why.empty())
      of_peers.push_back({level::warning, "waiting", name + " waits for " + why, {}});
  }
  auto plural = [](std::size_t n) { return std::to_string(n) + (n == 1 ? " peer" : " peers"); };
  out.push_back(
    {answered > 0 ? level::good : level::bad,
     "peers",
     plural(answered) + " of " + plural(count) + " answer"
       + (clients > 0 ? "; " + std::to_string(clients) + " are clients, which nobody can ask"
                      : std::string{}),
     {}});
  auto parts = [](const std::map<std::string, std::set<std::string>>& all) {
    std::string text;
    for (const auto& [value, who] : all)
      text += (text.empty() ? "" : "; ") + value + ": " + listed(who);
    return text;
  };
  if (histories.size() > 1)
    out.push_back({level::bad, "split", "the run has split into histories: " + parts(histories),
                   "connect the parts: give a peer of one part an address of the other as "
                   "--initial-peers; the smaller part then follows the larger one"});
  else if (!histories.empty())
    out.push_back({level::good, "history", "all that train hold one history", {}});
  if (versions.size() > 1)
    out.push_back({level::warning, "version", "peers run different versions: " + parts(versions),
                   "use one version on all peers"});
  out.insert(out.end(), of_peers.begin(), of_peers.end());
  return out;
}

} // namespace waggle
