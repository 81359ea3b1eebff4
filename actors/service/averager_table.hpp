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
  void add(entry made);
  void remove(const std::string& name);
  /// Fails with ec::bad_config.
  [[nodiscard]] result<entry> find(const std::string& name) const;

  /// Whether a round may begin; `end_round` follows then.
  [[nodiscard]] bool begin_round();
  void end_round();
  /// From now on no round begins. After the last one that runs, the peer leaves the groups that its
  /// averagers kept, so that nobody waits for it.
  void pause();
  void resume();
  [[nodiscard]] bool is_paused() const;

private:
  void quit_groups() const;

  mutable std::mutex mutex_;
  std::map<std::string, entry> all_;
  std::size_t rounds_ = 0; // that run
  bool paused_ = false;
};

} // namespace waggle
