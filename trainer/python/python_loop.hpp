#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <pybind11/pybind11.h>

#include "actors/loop/shards.hpp"
#include "actors/loop/swarm_session.hpp"
#include "runtime/status/status_board.hpp"
#include "runtime/training/state_schema.hpp"

namespace waggle::python {

namespace py = pybind11;

/// Throws std::invalid_argument with a sentence, unless it is the seconds of a notice.
void check_notice(double within);

/// The peer of a loop in Python. All calls but `leave` and `notice` come from the thread that
/// called `start`, with the GIL; what waits gives it up meanwhile. Calls the model's methods
/// `settle(numbers, present)`, `apply(gradient, lr)`, `step(lr)`, `read(which, into)`,
/// `write(which, values)`, `read_left_out(into)`, `write_left_out(values)`, `steps()`,
/// `set_steps(n)` and `rounding()`, and those of device_gradient if that is what it has, on that
/// thread only. With
/// --delay-optimizer-step the model has a master copy, which these are about, and they are called
/// on a worker's thread; only `refresh()`, which takes its values over, on the loop's. A
/// mistake of the caller throws std::invalid_argument or swarm_error.
class python_loop {
public:
  explicit python_loop(const swarm_options& options);
  ~python_loop();
  python_loop(const python_loop&) = delete;
  python_loop& operator=(const python_loop&) = delete;

  /// See shards. The GIL is free while they wait.
  void deal(std::uint64_t samples, std::uint64_t passes);
  [[nodiscard]] bool begin_shards();
  [[nodiscard]] std::vector<std::uint64_t> next_shards(std::uint64_t most);
  [[nodiscard]] std::uint64_t passes_complete() const;

  /// `table`: what peers exchange. `rate_ratios`: of the parameter groups, for their agreement;
  /// empty: all have one rate. `rounds`: see swarm_session::start. `on_device`: see loop_port.
  /// `hears_gradients`: see backward_pass::hear. REQUIRES: with --delay-optimizer-step, no
  /// buffers in `table`, and not on_device.
  void start(py::object model, const swarm_options& options, state_table table,
             const optimizer_identity& optimizer, double learning_rate,
             const std::string& rate_ratios, const frozen_tensors& frozen,
             const std::string& rounds, bool on_device, bool hears_gradients);
  /// See loop_port. `address`: of float32 values one after another.
  void computed(std::size_t parameter, std::uintptr_t address, std::uint64_t samples);
  void discard_pass();
  [[nodiscard]] std::uint64_t samples_early() const { return port_ ? port_->samples().early : 0; }
  /// The gradient and, behind it, the buffers: written by Python before `offer`.
  [[nodiscard]] py::memoryview gradient();
  /// Without addresses: the rate that every parameter wishes for; none: no wish. All have
  /// gradients.
  void wish(std::optional<double> rate);
  /// Returns the outcome. No loss: it is not known. `addresses`: of the gradient of each parameter
  /// (0: zeros), of each buffer, and if there are numbers to settle of the update_terms: float32
  /// values one after another, which stay as they are meanwhile; without them, what is in
  /// `gradient` is offered. `written`: see micro_step. `passes`: see offered_gradients::add.
  /// `finite`: of a gradient on a device, or of one whose loss was multiplied by `scale` (0: none).
  /// `claims`: 0, or the blocks of a stream that it is over.
  [[nodiscard]] step_outcome offer(std::uint64_t samples, std::optional<double> loss,
                                   const std::optional<py::list>& addresses, std::uint64_t passes,
                                   std::string written, bool finite, std::uint64_t claims,
                                   double scale);
  /// By which to multiply the loss of the next pass; none without "loss-scale".
  [[nodiscard]] std::optional<double> loss_scale() const;
  /// See optimizer.hpp.
  void keep(const py::bytes& what);
  [[nodiscard]] py::bytes kept();
  /// See loop_port::epoch.
  [[nodiscard]] std::uint64_t epoch() const { return port_ ? port_->epoch() : 0; }
  /// See loop_port. After `leave`, which has shown them, `show_own` does nothing.
  void show_shared();
  void show_own();
  /// See loop_port::adds_up.
  [[nodiscard]] bool adds_up() const { return port_ && port_->adds_up(); }
  /// From any thread; from another one than the loop's, what the loop's thread saw last: in `offer`
  /// it looks every 100 ms.
  [[nodiscard]] swarm_status status();
  /// Of a group, this peer on rank 0: for its status.
  void show_ranks(std::vector<rank_pace> all) const;
  /// See swarm::notice. From any thread; after `leave` it does nothing.
  void notice(double within) const;
  /// Leaves the run, and frees the port and the data folder. From any thread: a wait of another one
  /// in the peer ends by swarm_error with ec::shutting_down; ec::not_owner if it does not end.
  void leave(bool in_a_hurry);
  static constexpr std::chrono::seconds end_of_wait_max{10};

  /// Or it leaves now.
  [[nodiscard]] bool left() const { return !session_; }
  /// Where this peer is, and was. Its addresses are known from `start` on.
  struct place {
    std::string id;
    std::string data_dir;
    std::optional<std::string> address;
    std::vector<std::string> addresses;
  };
  [[nodiscard]] const place& where() const;

private:
  class away;
  void require_process() const;
  void require_loop() const;
  void require_optimizer() const;
  void require_shards() const;
  template <class Call>
  auto waiting(Call call);
  [[nodiscard]] bool look();
  void end_wait();
  void point_to(const std::optional<py::list>& addresses);

  std::shared_ptr<swarm_session> session_; // null: it has left
  std::optional<shards> shards_;
  std::unique_ptr<loop_model> model_;
  std::shared_ptr<loop_port> port_;
  std::vector<float> gradient_; // empty: nobody asked for it
  std::vector<float> terms_;    // without addresses
  std::vector<offered_tensor> offered_;
  swarm_status status_; // the last one
  place where_;
  const int process_;
  std::thread::id thread_;
  std::mutex mutex_; // guards user_; the GIL is never waited for with it
  std::condition_variable free_;
  std::thread::id user_;              // waits in the peer, or leaves, without the GIL; none: nobody
  std::atomic<bool> leaving_ = false; // another thread wants to leave, or has left
};

} // namespace waggle::python
