#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "actors/service/running_node.hpp"
#include "waggle/averager.hpp"

namespace waggle {

/// Tensors of the caller's, which one thread at a time reads or writes.
struct tensors_in_use {
  explicit tensors_in_use(tensor_vector all) : tensors(std::move(all)) {}

  /// The vector that a round averages; null: of an auxiliary. Fails with ec::non_finite.
  [[nodiscard]] result<std::shared_ptr<const float_vector>> read(vector_pool& vectors,
                                                                 bool auxiliary);
  /// Writes a mean, of which `sent` (null with an alpha of 1) is what this peer has sent.
  void write(const round_report& ended, const float_vector* sent, double alpha);

  std::mutex mutex;
  const tensor_vector tensors;
};

/// The question to an averager's actor about these tensors, without their values.
average_vector step_question(const average_options& options, const tensors_in_use& of,
                             std::shared_ptr<step_progress> progress);
/// For the metrics, and those that watch the peer.
void report_round(const report_relay_actor& to, const round_report& ended);

/// Says more of why a step failed.
using step_explanation = std::function<failure(const failure&)>;

/// A step of an averager, whose actor answers an asker in the peer's actor system. Thread-safe.
class running_step {
public:
  static result<std::shared_ptr<running_step>> begin(std::shared_ptr<running_node> peer,
                                                     const averager_table::entry& of,
                                                     std::shared_ptr<tensors_in_use> tensors,
                                                     const average_options& options,
                                                     step_explanation explain);
  ~running_step() { cancel(); }
  running_step(const running_step&) = delete;
  running_step& operator=(const running_step&) = delete;

  [[nodiscard]] step_stage stage() const { return outcome_->progress->load(); }
  status allow_allreduce();
  void cancel();
  [[nodiscard]] result<average_report> wait(milliseconds timeout);

private:
  /// What the asker shares with us. It must not hold the peer, whose actor system it is in.
  struct outcome {
    std::shared_ptr<step_progress> progress = std::make_shared<step_progress>();
    std::mutex mutex;
    std::condition_variable ended;
    std::optional<result<round_report>> report; // guarded by `mutex`
  };

  running_step(std::shared_ptr<running_node> peer, const averager_table::entry& of,
               std::shared_ptr<tensors_in_use> tensors)
    : peer_(std::move(peer)), of_(of), tensors_(std::move(tensors)) {}

  void ask(average_vector question);
  [[nodiscard]] result<std::shared_ptr<const float_vector>> read() const {
    return tensors_->read(*peer_->node.ctx.vectors, of_.options.auxiliary);
  }

  const std::shared_ptr<running_node> peer_; // ends last
  const averager_table::entry of_;
  const std::shared_ptr<tensors_in_use> tensors_;
  step_explanation explain_; // set before it begins
  const std::shared_ptr<outcome> outcome_ = std::make_shared<outcome>();
  std::mutex mutex_;
  bool waits_ = false;                       // for allow_allreduce; guarded by mutex_
  bool written_ = false;                     // guarded by mutex_
  std::shared_ptr<const float_vector> sent_; // guarded by mutex_; kept only if alpha is not 1
};

} // namespace waggle
