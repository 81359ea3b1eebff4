// waggle members: keeps the list of the peers that belong to a run, and gives it to a peer.

#include <future>
#include <iostream>

#include "runtime/cli/commands.hpp"
#include "runtime/config/options.hpp"
#include "runtime/core/disk.hpp"
#include "runtime/crypto/identity.hpp"
#include "runtime/crypto/member_list.hpp"
#include "runtime/net/tcp_transport.hpp"

namespace waggle {

namespace {

namespace fs = std::filesystem;

constexpr auto dial_timeout = 4s;
constexpr const char* usage =
  "say what to do: waggle members --key auth.pem add PEER… --until 2027-01-31, remove PEER…, show, "
  "or push HOST:PORT";

fs::path list_file(const run_options& o) {
  return o.members_list.empty() ? fs::path{"members.list"} : fs::path{o.members_list};
}

/// Nothing: there is none yet, and none is needed.
result<std::optional<member_list>> read_own_list(const run_options& o, bool needed = true) {
  auto source = list_file(o);
  std::error_code unknown;
  if (!is_inline_list(source.string()) && !fs::exists(source, unknown)) {
    if (needed)
      return failure{ec::bad_config,
                     "there is no list " + source.string() + ": name it with --members-list"};
    return std::optional<member_list>{};
  }
  auto bytes = read_list(source.string());
  auto list = bytes ? member_list::parse(*bytes) : result<member_list>{bytes.error()};
  if (!list)
    return failure{ec::bad_config,
                   "'" + source.string() + "' is no list of members: " + to_string(list.error())};
  return std::optional{std::move(*list)};
}

/// The key of the authority; a new one if there is neither key nor list.
result<std::shared_ptr<const identity>> authority_of(const run_options& o,
                                                     const std::optional<member_list>& list) {
  fs::path file{o.authority_key};
  if (file.empty())
    return failure{ec::bad_config, "the list is signed: name the private key of whoever keeps it "
                                   "with --key FILE, which is made with a new list"};
  std::error_code unknown;
  bool is_new = !fs::exists(file, unknown);
  if (is_new && list)
    return failure{ec::bad_config, "there is no key '" + file.string() + "', and "
                                     + list_file(o).string()
                                     + " is signed already: name the key that signed it"};
  auto key = identity::load_or_create(file);
  if (!key)
    return failure{ec::bad_config, "--key: " + key.error().detail};
  if (list && (*key)->key() != list->authority())
    return failure{ec::bad_config, "'" + file.string() + "' is not the key that signed "
                                     + list_file(o).string() + ": two authorities are two runs"};
  if (is_new)
    std::cerr << "made the key " << file.string()
              << ": whoever has it says who belongs to the run; keep it safe and to yourself\n";
  return key;
}

result<std::vector<peer_id>> named_peers(const run_options& o) {
  std::vector<peer_id> out;
  for (std::size_t i = 1; i < o.arguments.size(); ++i) {
    if (o.arguments[i].empty())
      continue;
    auto id = peer_id::parse(o.arguments[i]);
    if (!id)
      return failure{ec::bad_config, "'" + o.arguments[i]
                                       + "' is no peer's id, which has 64 hexadecimal digits: "
                                         "`waggle id` prints it on that peer's machine"};
    out.push_back(*id);
  }
  if (out.empty())
    return failure{ec::bad_config,
                   "name at least one peer by its id, which `waggle id` prints on its machine"};
  return out;
}

void print(const member_list& list) {
  std::cout << "authority  " << to_string(list.authority()) << "\n"
            << "version    " << list.rank().version << "\n"
            << "until      " << date_of(list.end()) << "\n";
  auto now = system_wall_clock{}.now();
  for (const auto& each : list.members())
    std::cout << to_string(each.id) << "  until " << date_of(each.until)
              << (each.until <= now ? " (over)" : "") << "\n";
}

int change(const run_options& o, bool adds) {
  auto peers = named_peers(o);
  if (!peers)
    return bad_usage(peers.error().detail);
  auto until = end_of_day(o.until);
  auto now = system_wall_clock{}.now();
  if (adds && !until)
    return bad_usage("say until when they belong to the run: --until 2027-01-31");
  if (adds && *until <= now)
    return bad_usage("--until " + o.until + " is in the past");
  auto list = read_own_list(o, !adds);
  if (!list)
    return bad_usage(list.error().detail);
  auto members = *list ? (*list)->members() : std::vector<member_list::member>{};
  for (const auto& id : *peers) {
    auto gone = std::erase_if(members, [&](const auto& each) { return each.id == id; });
    if (adds)
      members.push_back({id, *until});
    else if (gone == 0)
      return bad_usage(to_string(id) + " is not on the list");
  }
  if (members.size() > member_list::members_max)
    return bad_usage("a list has at most " + std::to_string(member_list::members_max)
                     + " members, and this one would have " + std::to_string(members.size())
                     + ": remove some");
  auto key = authority_of(o, *list);
  if (!key)
    return bad_usage(key.error().detail);
  auto version = *list ? (*list)->rank().version + 1 : 1;
  auto made = member_list::sign(**key, version, std::move(members), *list ? (*list)->end() : now);
  if (!made)
    return bad_usage(to_string(made.error()));
  if (auto written = make_system_disk()->write(list_file(o), {as_byte_span(made->bytes())});
      !written)
    return bad_usage(written.error().detail);
  print(*made);
  std::cerr
    << "wrote " << list_file(o).string()
    << "; `waggle members push HOST:PORT` gives it to a running peer, and that one to all\n";
  return exit_clean;
}

/// Shakes hands once, with an identity for the moment, which is on no list.
int push(const run_options& o) {
  auto where = parse_endpoint(o.arguments.size() > 1 ? o.arguments[1] : "");
  if (!where)
    return bad_usage("name a running peer: waggle members push HOST:PORT");
  auto list = read_own_list(o);
  if (!list)
    return bad_usage(list.error().detail);
  auto known = std::make_shared<run_members>((*list)->authority());
  (void)known->take((*list)->bytes());
  net::tcp_transport_config tcp;
  tcp.run_id = o.run();
  tcp.key = o.key;
  tcp.encrypts = o.encrypts;
  tcp.members = known;
  tcp.self = identity::generate();
  tcp.verifier = make_plain_verifier();
  tcp.record = {tcp.self->id(), tcp.self->key(), {}, true};
  tcp.clock = std::make_shared<system_wall_clock>();
  tcp.shared_memory = false;
  tcp.looks = true;
  auto network = net::make_tcp_transport(std::move(tcp));
  std::promise<result<std::vector<endpoint>>> resolved;
  network->resolve(*where, dial_timeout, [&](auto found) { resolved.set_value(std::move(found)); });
  auto addresses = resolved.get_future().get();
  auto why = addresses ? failure{} : addresses.error();
  for (const auto& address : addresses ? *addresses : std::vector<endpoint>{}) {
    std::promise<failure> ended;
    network->dial({address, *where, {}}, dial_timeout,
                  [&](const result<std::shared_ptr<net::link>>& made) {
                    ended.set_value(made ? failure{} : made.error());
                  });
    why = ended.get_future().get();
    if (why.code != ec::unreachable && why.code != ec::timeout)
      break;
  }
  network->stop();
  if (why.code != ec::none && why.code != ec::not_a_member)
    return bad_usage("the list was not given to " + to_string(*where) + ": " + to_string(why));
  if (known->rank() != (*list)->rank())
    return bad_usage(to_string(*where) + " has a newer list, version "
                     + std::to_string(known->rank().version) + ", and keeps it: change that one");
  std::cout << to_string(*where) << " has version " << known->rank().version << " of the list\n";
  return exit_clean;
}

int run(const run_options& o) {
  const auto& what = o.arguments.front();
  if (what == "add" || what == "remove")
    return change(o, what == "add");
  if (what == "push")
    return push(o);
  if (what != "show")
    return bad_usage(usage);
  auto list = read_own_list(o);
  if (!list)
    return bad_usage(list.error().detail);
  print(**list);
  return exit_clean;
}

} // namespace

command members_command() {
  return {
    .name = "members",
    .summary = "Keeps the list of peers that belong to a run.",
    .details = "  waggle members --key auth.pem add PEER… --until 2027-01-31\n"
               "  waggle members --key auth.pem remove PEER…\n"
               "  waggle members show\n"
               "  waggle members push HOST:PORT --swarm-key FILE     to a running peer\n"
               "The list is the file members.list in this folder, or that of --members-list. Peers "
               "that start with --members KEY (the public key that `show` prints) link with those "
               "on it, and with nobody else. They pass a newer list on to each other.\n",
    .groups = {"members"},
    .arguments = {{"WHAT", "add, remove, show or push."},
                  {"PEER", "Ids of peers; or HOST:PORT of the peer that gets the list.", false}},
    .run = run,
    .single_options = {"members-list", "run-id", "swarm-key", "encrypt"},
    .more_arguments = true};
}

} // namespace waggle
