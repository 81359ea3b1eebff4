#include "runtime/cli/findings.hpp"

#include <algorithm>
#include <set>

#include <spdlog/fmt/fmt.h>

#include "runtime/cli/readable.hpp"
#include "runtime/core/bytes.hpp"
#include "runtime/core/named.hpp"
#include "runtime/net/dial_policy.hpp"
#include "runtime/net/refusals.hpp"
#include "runtime/watch/json_fields.hpp"

namespace waggle {

namespace {

using level = finding::level;
using json = nlohmann::ordered_json;

constexpr std::size_t text_max = 400; // of what a peer wrote
/// What a trainer takes besides, and how many times its parameters (tests/bench/RESULTS.md).
constexpr std::uint64_t trainer_bytes = 150'000'000;
constexpr double kept_copies = 8;

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
  return padded(to_string(f.how), 9) + padded(f.check, 14)
         + without_control_characters(f.seen, 2 * text_max)
         + (f.cure.empty() ? std::string{}
                           : "\n" + std::string(23, ' ') + "→ "
                               + without_control_characters(f.cure, 2 * text_max));
}

std::string to_json(const std::vector<finding>& all) {
  auto out = json::array();
  for (const auto& f : all)
    out.push_back({{"check", f.check},
                   {"level", to_string(f.how)},
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
  else if (facts.running && !facts.locked)
    out.push_back({level::bad, "data folder",
                   name + " is a copy of the folder of the peer that runs at "
                     + to_string(*facts.running) + ": both would use one identity",
                   "delete identity.pem, known_peers and address there, or give --data-dir another "
                   "folder"});
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
  if (facts.key_bad)
    out.push_back({level::bad, "key", *facts.key_bad,
                   "restore the file, or delete it: the peer makes a new one"});
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

finding judge_memory(std::uint64_t available, std::uint64_t parameter_bytes) {
  auto seen = readable_bytes(static_cast<double>(available)) + " of memory are available";
  auto needed =
    static_cast<double>(trainer_bytes) + kept_copies * static_cast<double>(parameter_bytes);
  if (parameter_bytes > 0 && needed > static_cast<double>(available))
    return {level::bad, "memory",
            seen + ", and a trainer of this model, whose parameters take "
              + readable_bytes(static_cast<double>(parameter_bytes)) + ", needs about "
              + readable_bytes(needed),
            "use a smaller model, another machine, or raise the limit of the container"};
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
  if (why.detail.find("is taken") == std::string::npos)
    return {level::bad, "address", why.detail, "give --listen an address and port of this machine"};
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

namespace {

/// What a refused dial says, and what helps.
struct refusal {
  ec code;
  std::string_view seen; // {}: the detail
  std::string_view cure;
  level how = level::bad;
  std::string_view check = "initial peer";
};
constexpr refusal refusals[]{
  {ec::timeout, "no answer within the time: a firewall may drop packets",
   "open that TCP port on its machine and in front of it; or its machine is off"},
  {ec::unreachable, "nothing accepts connections ({})",
   "start the peer, or correct the address; is its port the one of --listen?"},
  {ec::wrong_run, "a peer of another run", "give the same --run-id as its peers"},
  {ec::wrong_version, "a peer of another version ({})",
   "use the same version of waggle on all peers"},
  {ec::agreement_mismatch, "its options differ: {}",
   "start this peer with the join line that the run's peers print"},
  {ec::clock_skew, "{}", "set this machine's clock, or the peer's (e.g. with chrony)", level::bad,
   "clock"},
  {ec::not_a_member, "{}",
   "send the id of this peer to whoever keeps the list of members (`waggle id` prints it); a peer "
   "that is added while it runs gets in by itself",
   level::bad, "members"},
  {ec::malformed, "another program answers there, no waggle peer ({})",
   "correct the address in --initial-peers"},
  {ec::protocol_violation, "another program answers there, no waggle peer ({})",
   "correct the address in --initial-peers"},
  {ec::overloaded, "{}", "try again in a minute, or name further peers", level::warning},
  {ec::rate_limited, "{}", "try again in a minute, or name further peers", level::warning}};

/// The same, where the sentence says more than the code.
constexpr std::pair<std::string_view, std::string_view> cures[]{
  {"swarm key", "copy the run's key to this machine and name it with --swarm-key FILE, or use the "
                "run file that `waggle invite` prints there"},
  {"--members KEY", "give this peer the --members KEY of the run, or use the run file that `waggle "
                    "invite` prints there"},
  {"for a newer one",
   "give --members-list the file of a newer list, from whoever keeps it; if this "
   "one should hold, set this machine's clock"},
  {"--encrypt never", "give --encrypt never to all peers of the run, or to none"},
  {net::relayed, "look who answers at that address, and reach the peer another way"}};

} // namespace

finding judge_dial(const endpoint& given, const endpoint& where, const failure& why,
                   const std::optional<peer_id>& met) {
  auto at = place(given, where);
  if (why.code == ec::none)
    return {level::good,
            "initial peer",
            at + " is peer " + (met ? short_name(*met) : "?") + " of this run; it accepts this one",
            {}};
  auto detail = without_control_characters(why.detail, text_max);
  at += ": ";
  if (why.code == ec::wrong_version && detail.starts_with(net::not_a_peer))
    return {level::bad, "initial peer", at + "another program answers there: " + detail,
            "correct the address in --initial-peers"};
  if (why.code == ec::duplicate_identity)
    return {net::started_wrongly(why) ? level::bad : level::warning, "initial peer",
            at + (net::started_wrongly(why) ? detail : "leads to this peer itself"),
            net::started_wrongly(why) ? "give each peer its own --data-dir"
                                      : "name another peer, too, unless this one starts the run"};
  for (const auto& [sentence, cure] : cures)
    if (detail.find(sentence) != std::string::npos)
      return {level::bad, "initial peer", at + detail, std::string{cure}};
  auto known = std::ranges::find(refusals, why.code, &refusal::code);
  if (known == std::end(refusals))
    return {level::bad, "initial peer", at + std::string{to_string(why.code)} + ": " + detail,
            "see the log of that peer"};
  return {known->how, std::string{known->check},
          at + fmt::format(fmt::runtime(known->seen), detail), std::string{known->cure}};
}

std::optional<finding> judge_identity(const peer_id& own, const std::string& peers) {
  auto all = field(parse_document(peers).value_or(nullptr), "peers");
  if (!all.is_array())
    return std::nullopt;
  for (const auto& each : all)
    if (text_in(each, "id") == to_string(own)
        && (field(each, "connected") == true || field(each, "self") == true))
      return finding{level::bad, "identity",
                     "a peer with the identity of this data folder runs already",
                     "stop it, or delete identity.pem here if this folder is a copy"};
  return std::nullopt;
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
  auto port = "port " + joined({ports.begin(), ports.end()}, ", ");
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

finding judge_port_mapping(bool wanted, bool possible) {
  constexpr auto check = "port mapping";
  if (!wanted)
    return {level::warning, check, "no router is asked for this port (--port-mapping off)",
            "leave that option out, unless the port is forwarded"};
  if (!possible)
    return {level::warning, check,
            "no router is asked for this port: this program was built without libminiupnpc and "
            "libnatpmp",
            "build it with them, or forward the port yourself"};
  return {level::good,
          check,
          "a peer that others do not reach asks its router for this port (UPnP, NAT-PMP)",
          {}};
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

} // namespace waggle
