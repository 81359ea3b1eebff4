#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include <caf/all.hpp>

#include "actors/actors.hpp"
#include "actors/node_context.hpp"
#include "runtime/core/disk.hpp"
#include "runtime/dht/known_peers.hpp"

namespace waggle {

struct address_book_config {
  /// The file of known peers. Empty: none, and no address_book is started.
  std::filesystem::path file;
  /// Delay from a change to its write, so that many changes within that time cost one write.
  milliseconds save_interval{5'000};
};

/// The peers that an earlier run of this process stored in `file`. None if there is no such file,
/// or, with a logged warning, if the file cannot be used.
known_peers load_known_peers(disk& files, const std::filesystem::path& file,
                             const node_context& ctx);

/// Takes the list of members that this peer had when it ran last, if it is newer than the one that
/// it has; with a logged warning, nothing, if the file cannot be used.
void load_kept_list(disk& files, const std::filesystem::path& folder, const node_context& ctx);

/// To itself: write the changes.
struct save_known_peers {};

using address_book_actor = link_listener_actor::extend_with<members_listener_actor>;
using address_book_base = address_book_actor::extend<caf::reacts_to<save_known_peers>>::base;

/// Beside the file of known peers: the newest list of members.
constexpr const char* members_file = "members.list";

/// Keeps on the disk which peers were connected last, and the list of members, for the time after a
/// restart. Blocks while it writes.
class address_book final : public address_book_base {
public:
  address_book(caf::actor_config& cfg, node_context ctx, address_book_config config,
               std::shared_ptr<disk> files, known_peers loaded);

  const char* name() const override { return "address-book"; }

protected:
  behavior_type make_behavior() override;

private:
  void linked(const peer_record& peer);
  void unlinked(const peer_id& peer);
  void save();
  void save_later();
  void save_members();

  const node_context ctx_;
  const address_book_config config_;
  const std::shared_ptr<disk> files_;
  known_peers peers_;
  bool changed_ = false;    // since the last write
  bool save_due_ = false;   // save_known_peers is under way to us
  bool disk_fails_ = false; // logged
};

} // namespace waggle
