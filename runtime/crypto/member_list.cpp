#include "runtime/crypto/member_list.hpp"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <ctime>
#include <utility>

#include "runtime/core/byte_io.hpp"
#include "runtime/core/bytes.hpp"
#include "runtime/core/disk.hpp"
#include "runtime/core/try.hpp"
#include "runtime/crypto/digest.hpp"

namespace waggle {

namespace {

constexpr std::string_view magic = "waggle-members/1";
static_assert(magic.size() == 16);
constexpr std::string_view inline_prefix = "list:";
constexpr std::string_view newer_one =
  "ask whoever keeps it for a newer one: `waggle members push` gives it to a running peer, and "
  "--members-list FILE to one that starts";

failure malformed(const char* why) {
  return {ec::malformed, std::string{"a list of members: "} + why};
}

std::string version_of(const member_list& list) {
  return "version " + std::to_string(list.rank().version);
}

} // namespace

result<member_list> member_list::sign(const identity& authority, std::uint64_t version,
                                      std::vector<member> members, swarm_time end) {
  if (members.size() > members_max)
    return failure{ec::bad_config, "a list has at most " + std::to_string(members_max)
                                     + " members, and this one would have "
                                     + std::to_string(members.size()) + ": remove some"};
  std::ranges::sort(members, {}, &member::id);
  if (!members.empty())
    end = std::ranges::max_element(members, {}, &member::until)->until;
  byte_writer out;
  out.put_raw(magic).put(authority.key(), version, to_nanoseconds(end));
  out.put(static_cast<std::uint32_t>(members.size()));
  for (const auto& each : members)
    out.put(each.id, to_nanoseconds(each.until));
  out.put(authority.sign(out.text()));
  return parse(out.text());
}

result<member_list> member_list::parse(std::string_view bytes) {
  if (bytes.size() > bytes_max)
    return failure{ec::oversize, "a list of members of " + std::to_string(bytes.size()) + " bytes"};
  byte_reader in{bytes};
  if (bytes.size() < bytes_min || in.get_raw(magic.size()) != magic)
    return malformed("it does not begin like one");
  member_list out;
  in.read(out.authority_, out.rank_.version);
  out.end_ = swarm_time_from(in.get<std::int64_t>());
  auto count = in.get<std::uint32_t>();
  if (count > members_max || bytes.size() != bytes_min + count * std::size_t{40})
    return malformed("its size does not fit its number of members");
  if (out.rank_.version == 0)
    return malformed("it has no version");
  out.members_.reserve(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    auto id = in.get<peer_id>();
    auto until = swarm_time_from(in.get<std::int64_t>());
    if (i > 0 && !(out.members_.back().id < id))
      return malformed("its members are out of order");
    if (until > out.end_)
      return malformed("it ends before a member does");
    out.members_.push_back({id, until});
  }
  auto by = in.get<signature>();
  auto text = bytes.substr(0, bytes.size() - signature::size);
  if (!in.ok() || !make_plain_verifier()->verify(out.authority_, as_byte_span(text), by))
    return failure{ec::bad_signature, "the signature of a list of members does not verify"};
  out.bytes_ = bytes;
  out.rank_.hash = sha256(as_byte_span(bytes));
  return out;
}

const member_list::member* member_list::find(const peer_id& peer) const {
  auto found = std::ranges::lower_bound(members_, peer, {}, &member::id);
  return found != members_.end() && found->id == peer ? &*found : nullptr;
}

std::string date_of(swarm_time time) {
  // A second less: the end of a day is that day's.
  auto seconds = static_cast<std::time_t>(
    std::chrono::duration_cast<std::chrono::seconds>(time.time_since_epoch()).count() - 1);
  std::tm parts{};
  char text[32] = "?";
  if (::gmtime_r(&seconds, &parts) != nullptr)
    (void)std::strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", &parts);
  return text;
}

std::optional<swarm_time> end_of_day(std::string_view date) {
  int fields[3] = {};
  constexpr std::pair<std::size_t, std::size_t> places[] = {{0, 4}, {5, 2}, {8, 2}};
  if (date.size() != 10 || date[4] != '-' || date[7] != '-')
    return std::nullopt;
  for (std::size_t i = 0; i < 3; ++i) {
    const auto* begin = date.data() + places[i].first;
    const auto* end = begin + places[i].second;
    if (auto [last, error] = std::from_chars(begin, end, fields[i]);
        error != std::errc{} || last != end || fields[i] < 0)
      return std::nullopt;
  }
  std::chrono::year_month_day day{std::chrono::year{fields[0]},
                                  std::chrono::month{static_cast<unsigned>(fields[1])},
                                  std::chrono::day{static_cast<unsigned>(fields[2])}};
  if (!day.ok() || fields[0] < 1970 || fields[0] > 2200) // nanoseconds end in 2262
    return std::nullopt;
  auto days = std::chrono::sys_days{day}.time_since_epoch() + std::chrono::days{1};
  return swarm_time{std::chrono::duration_cast<swarm_clock::duration>(days)};
}

// -- run_members

std::shared_ptr<const member_list> run_members::list() const {
  std::lock_guard guard{mutex_};
  return list_;
}

list_rank run_members::rank() const {
  auto held = list();
  return held ? held->rank() : list_rank{};
}

result<bool> run_members::take(std::string_view bytes) {
  if (bytes.size() > member_list::bytes_max)
    return failure{ec::oversize, "a list of members of " + std::to_string(bytes.size()) + " bytes"};
  // The version stands behind magic and key: most lists that arrive are the one that we have.
  byte_reader head{bytes};
  (void)head.get_raw(magic.size() + public_key::size);
  list_rank offered{head.get<std::uint64_t>(), sha256(as_byte_span(bytes))};
  if (head.ok() && bytes.starts_with(magic) && !offered.replaces(rank()))
    return false;
  WAGGLE_TRY(fresh, member_list::parse(bytes));
  if (fresh->authority() != authority_)
    return failure{ec::bad_signature, "a list of another authority, "
                                        + to_string(fresh->authority())
                                        + ": this run has --members " + to_string(authority_)};
  std::function<void()> changed;
  {
    std::lock_guard guard{mutex_};
    if (list_ && !fresh->rank().replaces(list_->rank()))
      return false;
    list_ = std::make_shared<const member_list>(std::move(*fresh));
    changed = changed_;
  }
  if (changed)
    changed();
  return true;
}

run_members::judgement run_members::judge(const peer_id& peer, swarm_time now) const {
  auto both = [](const std::string& here, const std::string& there) {
    return judgement{{ec::not_a_member, here}, {ec::not_a_member, there}};
  };
  auto held = list();
  if (!held)
    return both("this peer has no list of members yet: " + std::string{newer_one},
                "the other end has no list of members yet, and this one has none for it: "
                  + std::string{newer_one});
  auto version = version_of(*held);
  if (now >= held->end()) {
    auto over = "the list of members (" + version + ") is over since " + date_of(held->end()) + ": "
                + std::string{newer_one};
    return both(over, over);
  }
  const auto* found = held->find(peer);
  if (found != nullptr && now < found->until)
    return {};
  auto ended =
    found == nullptr ? std::string{} : ", its time on it ended on " + date_of(found->until);
  return both("peer " + short_name(peer) + " is not on the list of members (" + version + ")"
                + ended,
              "this peer is not on the run's list of members (" + version + ")" + ended
                + ": send its id, " + to_string(peer) + ", to whoever keeps the list");
}

std::optional<swarm_time> run_members::next_end(swarm_time now) const {
  auto held = list();
  std::optional<swarm_time> next;
  if (held)
    for (const auto& each : held->members())
      if (each.until > now && (!next || each.until < *next))
        next = each.until;
  return next;
}

void run_members::on_change(std::function<void()> changed) {
  std::lock_guard guard{mutex_};
  changed_ = std::move(changed);
}

// -- as text

std::string inline_text(const member_list& list) {
  return std::string{inline_prefix} + to_hex(as_byte_span(list.bytes()));
}

bool is_inline_list(std::string_view text) {
  return text.starts_with(inline_prefix);
}

result<std::string> read_list(std::string_view source) {
  if (!is_inline_list(source))
    return make_system_disk()->read(std::filesystem::path{source}, member_list::bytes_max);
  auto raw = source.size() <= inline_prefix.size() + 2 * member_list::bytes_max
               ? from_hex(source.substr(inline_prefix.size()))
               : std::nullopt;
  if (!raw)
    return failure{ec::bad_config, "what follows 'list:' is no list of members, which `waggle "
                                   "invite` writes in hexadecimal digits"};
  return *raw;
}

result<public_key> parse_authority(std::string_view text) {
  if (auto key = public_key::parse(text))
    return *key;
  std::error_code unknown;
  bool is_secret = text.find("PRIVATE KEY") != std::string_view::npos;
  if (text.size() < 4096
      && std::filesystem::is_regular_file(std::filesystem::path{text}, unknown)) {
    auto begin = make_system_disk()->read_begin(std::filesystem::path{text}, 4_KiB);
    is_secret = is_secret || (begin && begin->find("PRIVATE KEY") != std::string::npos);
  }
  if (is_secret)
    return failure{ec::bad_config,
                   "is a private key, which stays with whoever keeps the list: give "
                   "its public key, which `waggle members show` prints"};
  return failure{ec::bad_config,
                 "is no public key, which has 64 hexadecimal digits: `waggle members "
                 "show` prints that of a list"};
}

result<std::shared_ptr<run_members>> members_of(const public_key& authority,
                                                std::string_view source) {
  auto out = std::make_shared<run_members>(authority);
  if (source.empty())
    return out;
  auto bytes = read_list(source);
  WAGGLE_TRY(taken, bytes ? out->take(*bytes) : result<bool>{bytes.error()});
  return out;
}

} // namespace waggle
