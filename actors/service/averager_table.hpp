#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "actors/node/node.hpp"
#include "waggle/node.hpp"

namespace waggle {

struct tensors_in_use; // running_step.hpp

/// The averagers of a peer by name, and whether they are paused. Thread-safe.
class averager_table {
public:
  struct entry {
    averaging_actors actors;
    averager_options options;
    std::weak_ptr<tensors_in_use> tensors{}; // none: it has none, or has ended
  };
  void add(entry made) {
    std::lock_guard guard{mutex_};
    auto name = made.options.name;
    all_.insert_or_assign(std::move(name), std::move(made));
  }
  void remove(const std::string& name) {
    std::lock_guard guard{mutex_};
    all_.erase(name);
  }
  /// Fails with ec::bad_config.
  [[nodiscard]] result<entry> find(const std::string& name) const {
    std::lock_guard guard{mutex_};
    if (auto found = all_.find(name); found != all_.end())
      return found->second;
    return failure{ec::bad_config, "this peer has no averager '" + name + "'"};
  }

  /// Whether a round may begin; `end_round` follows then.
  [[nodiscard]] bool begin_round() {
    std::lock_guard guard{mutex_};
    rounds_ += paused_ ? 0 : 1;
    return !paused_;
  }
  void end_round() {
    std::lock_guard guard{mutex_};
    if (--rounds_ == 0 && paused_)
      quit_groups();
  }
  /// From now on no round begins. After the last one that runs, the peer leaves the groups that its
  /// averagers kept, so that nobody waits for it.
  void pause() {
    std::lock_guard guard{mutex_};
    paused_ = true;
    if (rounds_ == 0)
      quit_groups();
  }
  void resume() {
    std::lock_guard guard{mutex_};
    paused_ = false;
  }
  [[nodiscard]] bool is_paused() const {
    std::lock_guard guard{mutex_};
    return paused_;
  }

private:
  /// REQUIRES: mutex_ is held, and no round runs, which this would cancel.
  void quit_groups() const {
    for (const auto& [name, each] : all_)
      caf::anon_send(each.actors.group, quit_group{});
  }

  mutable std::mutex mutex_;
  std::map<std::string, entry> all_;
  std::size_t rounds_ = 0; // that run
  bool paused_ = false;
};

} // namespace waggle
