#include "tests/actors/limits_table/limits_table.hpp"

#include "actors/discovery/dht_router.hpp"
#include "actors/links/switchboard.hpp"
#include "actors/state/state_donor.hpp"
#include "actors/training/group_helper.hpp"
#include "runtime/allreduce/sum_audit.hpp"
#include "runtime/averaging/fault_memory.hpp"
#include "runtime/averaging/open_group.hpp"
#include "runtime/averaging/round_plan.hpp"
#include "runtime/matchmaking/recent_seekers.hpp"
#include "runtime/net/clock_watch.hpp"
#include "runtime/net/tcp_transport.hpp"
#include "runtime/progress/progress_ledger.hpp"
#include "runtime/training/left_progress.hpp"

namespace waggle {

namespace {

std::string bytes(std::uint64_t n) {
  if (n % 1_MiB == 0)
    return std::to_string(n / 1_MiB) + " MiB";
  return std::to_string(n / 1_KiB) + " KiB";
}
std::string per_second(net::work time) {
  return std::to_string(time.count() / 1'000) + " ms a second";
}
std::string seconds(milliseconds time) {
  return std::to_string(time.count() / 1'000) + " s";
}
std::string number(std::size_t n) {
  return std::to_string(n);
}
std::string refused(ec why) {
  return "`waggle_network_refused_total{reason=\"" + std::string{to_string(why)} + "\"}`";
}
std::string rejected(ec why) {
  return "`waggle_dht_records_rejected_total{reason=\"" + std::string{to_string(why)} + "\"}`";
}

const char* const holds = "`waggle_network_link_holds_total`";
const char* const read_later = "the link waits";

} // namespace

std::vector<limit_row> limits_table() {
  const net::tcp_transport_config tcp;
  const net::link_budget::limits link;
  const net::stranger_budget::limits strangers;
  const round_registry::limits rounds;
  const dht_config dht;
  const donor_config donor;
  const help_config helper;
  const ledger_options ledger;
  const net::clock_watch::options clocks;
  const switchboard_config links;
  const bootstrap::options joining;
  const net::dial_back_limits::options dial_backs;
  const net::reachability::options reach;
  const punch_config punching;
  const fault_memory::limits faults;
  const auto overloaded = refused(ec::overloaded);
  const auto rate_limited = refused(ec::rate_limited);
  return {
    {"messages of a link that wait for an actor", bytes(link.waiting_bytes_max),
     "the largest message, or hundreds of usual ones", read_later, holds},
    {"work that a stranger causes, in any case", per_second(link.work_per_second),
     "500 short messages, 33 signed reports, or 5,000 frames that are not messages",
     "counts against the next row", holds},
    {"work that all strangers cause beyond that", per_second(strangers.work_per_second),
     "leaves the cores to training; newcomers need a few milliseconds", read_later, holds},
    {"bodies and long headers of all strangers in memory", bytes(strangers.body_bytes_max),
     "a download of a state at its widest, or parts of a round of which we do not know yet",
     read_later, holds},
    {"messages to a stranger that it has not read", bytes(link.unread_bytes_max),
     "the largest answer, or hundreds of usual ones", "it gets no answers, and the link ends soon",
     holds},
    {"these and the messages that wait for an actor, of all strangers",
     bytes(strangers.queue_bytes_max), "hundreds of newcomers",
     "a link has no more than " + bytes(link.queue_share), holds},
    {"pieces of a state that a peer has not read", bytes(link.unread_bodies_max),
     "what a download has requested at the same time",
     "requests are refused; a stranger that takes none loses its link",
     "the caller's `waggle_state_downloads_total`"},
    {"the same, of all strangers", bytes(strangers.unread_bodies_max), "several downloads at once",
     "a link has no more than " + bytes(link.unread_bodies_share), "as above"},
    {"requests for a state in preparation; of one host; of one peer",
     number(donor.offers_max) + "; " + number(donor.offers_per_host_max) + "; 1",
     "dozens of newcomers that compare the donors", "the request is refused",
     "the caller's `waggle_state_downloads_total`"},
    {"downloads of our state at once", number(donor.downloads_max),
     "more would share the bandwidth that training needs",
     "the host with most gives one up, or it is refused", "as above"},
    {"copies of our state for them", number(donor.downloads_max + 1),
     "one for each download, and the newest", "the one unused for longest goes", "as above"},
    {"time without a chunk that a download did not have yet", seconds(donor.snapshot_idle),
     "three times what a download waits for a chunk", "it makes room for others", "as above"},
    {"peers that have left, for which we keep what they had alone; for",
     number(left_progress::kept_max) + "; " + seconds(left_progress::kept_for),
     "machines that are taken back, and soon given back", "the leaver asks another neighbour",
     "none: it says so in its log"},
    {"peers that wait for a state from a `waggle node`", number(helper.waiting_max),
     "the clients of a group that one peer helps", "the request is refused", "as above"},
    {"bodies of one link in flight", bytes(tcp.window_bytes), "fills a fast link",
     "the link is closed: an honest peer waits", refused(ec::protocol_violation)},
    {"messages for rounds that have not begun, of a member", number(rounds.parked_events_max),
     "the parts of a whole vector", "dropped", refused(ec::unknown_round)},
    {"the same, of a stranger", number(rounds.stranger_events_max), "its first round", "dropped",
     refused(ec::unknown_round)},
    {"the same, of all strangers",
     number(rounds.strangers_events_max) + ", " + bytes(rounds.strangers_bytes_max),
     "several newcomers at once", "those of the host with most are dropped",
     refused(ec::unknown_round)},
    {"bodies of a member of the round that comes next", "twice the vector",
     "a large model's first round", "counts as a stranger's", refused(ec::unknown_round)},
    {"parts of a round; of one whose sums are checked",
     number(parts_max) + "; " + number(checked_parts_max),
     "the largest vector, 32 GiB, in parts of 512 KiB", "the plan is refused",
     refused(ec::protocol_violation)},
    {"challenges of a member before the checks are drawn", number(early_challenges_max),
     "one convicts a reducer", "ignored", "none: an honest checker loses nothing"},
    {"time that they are kept", seconds(rounds.parked_for), "a plan that is late", "dropped",
     refused(ec::unknown_round)},
    {"plans of one member that wait for a round", number(open_group::early_plans_max),
     "newcomers that a leader admits one after another", "its oldest is dropped",
     "none: an honest leader waits for the others' rounds"},
    {"members whose faults are remembered", number(faults.peers_max),
     "16 full groups; strangers are never among them", "the oldest is forgotten",
     "`waggle_averaging_excluded_peers`"},
    {"peers whose progress is remembered; by the DHT only; gone",
     number(ledger.peers_max) + "; " + number(ledger.unconnected_max) + "; "
       + number(ledger.unconnected_max),
     "a run of a thousand peers", "the host with most gives up its oldest; never a member",
     overloaded},
    {"peers that asked for a group while we did not search", number(recent_seekers::peers_max),
     "the newcomers of " + seconds(recent_seekers::memory), "not remembered",
     "none: a peer that still searches asks again"},
    {"records with a bad signature, of one link", number(links.link.bad_signatures_max),
     "honest peers send none", "the link is closed, with this reason", refused(ec::bad_signature)},
    {"requests of one link at once", number(links.link.inbound_calls_max), "parallel lookups",
     "the request is refused", "the caller's `waggle_dht_requests_total`"},
    {"records stored here", bytes(dht.store.bytes_max), "a run of thousands of peers",
     "those that expire first make room", rejected(ec::overloaded)},
    {"records of one key", number(rules_of(record_kind::progress)->entries_max),
     "the reports of thousands of peers",
     "strangers' make room for members', then those of the host with most",
     rejected(ec::overloaded)},
    {"records of strangers, per kind", bytes(dht.store.stranger_bytes_max),
     "2,500 newcomers and observers", "the host with most makes room; never a member",
     rejected(ec::overloaded)},
    {"records of one owner, per kind", number(dht.store.owner_entries_max),
     "one for each search for a group", "its own oldest makes room", "`waggle_dht_records`"},
    {"nearer peers that make us refuse a stranger's record", number(dht.nearer_max),
     "twice the peers that a writer asks", "refused", rejected(ec::not_found)},
    {"lookups of our own at once", number(dht.searches_max), "all that the parts of a peer do",
     "a further one is repeated later", "none: what strangers do begins one at most"},
    {"links", number(links.links_max), "descriptors and pings",
     "a link with a stranger ends for one with a member or an initial peer", overloaded},
    {"links that strangers opened", number(links.stranger_links_max),
     "half of all; the other half is for members and our own dials",
     "the host with most gives one up, or the newcomer is refused", overloaded},
    {"links that we opened to strangers", number(links.dialled_strangers_max),
     "the members of a group, and a lookup", "the oldest is closed",
     "`waggle_network_connections`"},
    {"links with one peer", number(links.links_per_peer_max), "both dialled at once",
     "the oldest unused one is closed", overloaded},
    {"attempts to dial announced addresses, at once and per second", number(links.dials_max),
     "the members of a group", "the address waits, or the message fails",
     "`waggle_network_dial_errors_total{reason=\"overloaded\"}`"},
    {"ports that others have us dial back, and peers they tell us of, in 10 s; of one host",
     number(dial_backs.all_max) + "; " + number(dial_backs.of_host_max),
     "the newcomers of a swarm that starts", "not dialled; the peer asks again after 10 s",
     "none: the caller decides nothing"},
    {"punches that others ask for, or have us take part in, in 10 s; of one host",
     number(punching.limits.all_max) + "; " + number(punching.limits.of_host_max),
     "the members of a group that has just begun", "refused", rate_limited},
    {"pairs of peers that are brought together, or were, in 10 min",
     number(punching.broker.pairs_max), "those of a group of 45", "refused", overloaded},
    {"addresses of peers that dialled us that are tried, in 10 s; of one host",
     number(tries_max.all_max) + "; " + number(tries_max.of_host_max),
     "so few that dials of our own have room", "tried at the peer's next sign of life",
     "none: nobody is told of the peer until then"},
    {"members without a link that make this peer a client", number(reach.unlinked_max), "a group",
     "rounds stall, and those members are excluded", "`waggle_averaging_excluded_peers`"},
    {"our messages that wait for a dial to one peer", number(links.waiting_max),
     "what is sent within the dial's timeout", "requests fail, events are dropped",
     "the caller's `waggle_dht_requests_total`"},
    {"lost peers that are dialled again; strangers among them",
     number(joining.lost_max) + "; " + number(joining.lost_strangers_max), "a network split",
     "the one away longest is forgotten", "none: it is not dialled"},
    {"peers whose clocks are compared with ours", number(clocks.peers_max), "as many as links",
     "the one seen longest ago is forgotten", "`waggle_clock_skew_seconds`"},
    {"HTTP connections; of one host",
     number(tcp.http_connections.all) + "; " + number(tcp.http_connections.per_host),
     "scrapers, probes, browsers, and peers that dial", "the oldest of the host with most ends",
     rate_limited},
    {"time for pages other than the health pages", "250 ms a second", "a hundred scrapes a second",
     "status 429", rate_limited},
    {"handshakes at once; of one host",
     number(tcp.handshakes.all) + "; " + number(tcp.handshakes.per_host), "a swarm that starts",
     "the oldest of the host with most ends", rate_limited},
    {"handshakes of one host; its first messages of TLS",
     number(static_cast<std::size_t>(tcp.handshake_work / net::cost::handshake)) + " a second",
     "a swarm on one machine", "closed", rate_limited},
    {"peers on a list of members", number(member_list::members_max), "160 KiB in one message",
     "the list is refused", refused(ec::oversize)},
    {"links of the transport; hosts whose handshakes are counted", number(tcp.connections_max),
     "twice what the switchboard keeps", "closed after the upgrade", rate_limited},
  };
}

std::string to_markdown(const std::vector<limit_row>& rows) {
  std::string out;
  for (const auto& row : rows)
    out += "- " + row.what + ": **" + row.value + "**; " + row.beyond + "\n";
  return out;
}

} // namespace waggle
