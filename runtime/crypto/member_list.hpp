#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/ids.hpp"
#include "runtime/core/result.hpp"
#include "runtime/core/time.hpp"
#include "runtime/crypto/identity.hpp"

namespace waggle {

/// Which of two lists counts: the one of the higher version; of two with one version, the one with
/// the smaller hash, so that all peers choose the same.
struct list_rank {
  std::uint64_t version = 0; // 0: no list
  digest hash;

  /// Whether a peer that has `held` takes a list of this rank.
  [[nodiscard]] bool replaces(const list_rank& held) const {
    return version != held.version ? version > held.version : hash < held.hash;
  }
  friend bool operator==(const list_rank&, const list_rank&) = default;
};

/// The peers that belong to a run, signed by the run's authority. Immutable.
///
/// Its bytes, little-endian: magic, public key of the authority (32), version (8), end (8), number
/// of members (4); for each member, in the order of their ids, id (32) and end (8); signature over
/// all before it (64). Times are nanoseconds since the Unix epoch. There is one encoding of a list.
class member_list {
public:
  static constexpr std::size_t members_max = 4096;
  static constexpr std::size_t bytes_min = 16 + 32 + 8 + 8 + 4 + 64;
  static constexpr std::size_t bytes_max = bytes_min + members_max * (32 + 8);

  struct member {
    peer_id id;
    swarm_time until; // it belongs to the run before that

    friend bool operator==(const member&, const member&) = default;
  };

  /// The list ends when its last member does, or at `end` if it has none. Fails with ec::bad_config
  /// for more than members_max members.
  static result<member_list> sign(const identity& authority, std::uint64_t version,
                                  std::vector<member> members, swarm_time end = {});
  /// Checks sizes before anything is allocated, then the order, then the signature. Fails with
  /// ec::malformed, oversize or bad_signature. Whose list it is has to be compared by the caller.
  static result<member_list> parse(std::string_view bytes);

  [[nodiscard]] const public_key& authority() const { return authority_; }
  [[nodiscard]] const list_rank& rank() const { return rank_; }
  /// Nobody belongs to the run from then on, until there is a newer list.
  [[nodiscard]] swarm_time end() const { return end_; }
  [[nodiscard]] const std::vector<member>& members() const { return members_; }
  [[nodiscard]] const member* find(const peer_id& peer) const;
  [[nodiscard]] const std::string& bytes() const { return bytes_; }

private:
  member_list() = default;

  public_key authority_;
  list_rank rank_;
  swarm_time end_;
  std::vector<member> members_; // ascending by id
  std::string bytes_;
};

/// "2027-01-31 23:59 UTC"
std::string date_of(swarm_time time);
/// The end of that day, UTC, of a text such as "2027-01-31".
std::optional<swarm_time> end_of_day(std::string_view date);

/// Who belongs to the run, as this peer knows it: the newest list of its authority that it has
/// seen. Thread-safe.
class run_members {
public:
  explicit run_members(const public_key& authority) : authority_(authority) {}

  [[nodiscard]] const public_key& authority() const { return authority_; }
  /// Null: none was seen yet.
  [[nodiscard]] std::shared_ptr<const member_list> list() const;
  [[nodiscard]] list_rank rank() const;

  /// Takes a list from anybody. True: it is ours now. False: ours is as new or newer; then nothing
  /// is verified. Fails as member_list::parse does, and with ec::bad_signature for the list of
  /// another authority.
  result<bool> take(std::string_view bytes);

  /// Why a peer does not belong to the run; ec::none: it does. From either end of a link: `here` to
  /// the operator of this peer, `there` to that of the other.
  struct judgement {
    failure here;
    failure there;
  };
  [[nodiscard]] judgement judge(const peer_id& peer, swarm_time now) const;
  /// When the next member's time ends, if anybody's does.
  [[nodiscard]] std::optional<swarm_time> next_end(swarm_time now) const;

  /// Called whenever the list was replaced, by the thread that brought the new one.
  void on_change(std::function<void()> changed);

private:
  const public_key authority_;
  mutable std::mutex mutex_;
  std::shared_ptr<const member_list> list_;
  std::function<void()> changed_;
};

/// A list as text: "list:" and hexadecimal digits.
std::string inline_text(const member_list& list);
bool is_inline_list(std::string_view text);
/// Reads `source`, which is such a text, or names a file. Fails with a sentence.
result<std::string> read_list(std::string_view source);
/// The public key of whoever signs a run's list. Fails with half a sentence about `text`, which may
/// be, or name, a private key by mistake.
result<public_key> parse_authority(std::string_view text);
/// With the list in `source`, which is read as above; empty: without one yet.
result<std::shared_ptr<run_members>> members_of(const public_key& authority,
                                                std::string_view source);

} // namespace waggle
