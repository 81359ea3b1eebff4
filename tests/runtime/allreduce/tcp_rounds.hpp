#pragma once

// Rounds with real threads: every peer has an I/O thread that reads parts, workers that sum, and a
// thread that checks the clock, all over real sockets. No actors: what the thread sanitizer finds
// here is in this repository's code.

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include <gtest/gtest.h>

#include "runtime/allreduce/link_table.hpp"
#include "runtime/allreduce/round_registry.hpp"
#include "runtime/core/random.hpp"
#include "runtime/crypto/digest.hpp"
#include "runtime/crypto/identity.hpp"
#include "runtime/net/tcp_transport.hpp"
#include "tests/support/link_events.hpp"

namespace waggle::testing {

inline steady_time now() {
  return std::chrono::steady_clock::now();
}

/// How long the test waits; only a failing test waits that long.
constexpr milliseconds patience{100'000};

/// Shared state that several threads change and the test waits for.
class journal {
public:
  template <class F>
  auto with(F f) {
    std::lock_guard guard{mutex_};
    changed_.notify_all();
    return f();
  }
  /// False: `what` did not become true within `patience`. Calls `meanwhile` now and then.
  template <class F, class G>
  bool wait(F what, G meanwhile) {
    auto until = now() + patience;
    std::unique_lock guard{mutex_};
    while (!what()) {
      if (now() >= until)
        return false;
      changed_.wait_for(guard, 20ms);
      guard.unlock();
      meanwhile();
      guard.lock();
    }
    return true;
  }

private:
  std::mutex mutex_;
  std::condition_variable changed_;
};

/// Threads that run submitted jobs.
class workers {
public:
  explicit workers(std::size_t threads) {
    for (std::size_t i = 0; i < threads; ++i)
      threads_.emplace_back([this] { run(); });
  }
  ~workers() {
    {
      std::lock_guard guard{mutex_};
      ending_ = true;
    }
    changed_.notify_all();
    for (auto& thread : threads_)
      thread.join();
  }
  workers(const workers&) = delete;
  workers& operator=(const workers&) = delete;

  void add(std::function<void()> job) {
    {
      std::lock_guard guard{mutex_};
      jobs_.push_back(std::move(job));
    }
    changed_.notify_one();
  }

private:
  void run() {
    std::unique_lock guard{mutex_};
    for (;;) {
      changed_.wait(guard, [this] { return ending_ || !jobs_.empty(); });
      if (jobs_.empty())
        return;
      auto job = std::move(jobs_.front());
      jobs_.pop_front();
      guard.unlock();
      job();
      job = nullptr;
      guard.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  bool ending_ = false;
  std::vector<std::thread> threads_;
};

/// A peer of rounds over real sockets, without actors: an I/O thread that reads parts, and workers
/// that sum those of at least `offload_elements` values.
class tcp_peer {
public:
  tcp_peer(std::uint64_t seed, std::uint32_t offload_elements)
    : self_(identity::from_seed(seed)), offload_elements_(offload_elements) {
    net::tcp_transport_config config;
    config.run_id = "test";
    config.self = self_;
    config.verifier = verifier_;
    config.arena = net::shared_arena::make();
    config.record = record();
    transport_ = net::make_tcp_transport(std::move(config));
  }
  ~tcp_peer() { stop(); }

  [[nodiscard]] peer_record record() const { return {self_->id(), self_->key(), {}, false}; }

  endpoint listen() {
    auto bound = transport_->listen(
      {{"127.0.0.1", 0}}, [this](const std::shared_ptr<net::link>& link) { attach(link); });
    EXPECT_TRUE(bound);
    return bound->front();
  }
  void dial(const endpoint& where) {
    transport_->dial({where, {}, {}}, 20s, [this](const result<std::shared_ptr<net::link>>& made) {
      if (made)
        attach(*made);
    });
  }
  void stop() { transport_->stop(); }

  bool wait_for_links(std::size_t n) {
    return book_.wait([&] { return connected_ >= n; }, [] {});
  }

  void begin(const round_plan& plan, std::size_t self_index,
             std::shared_ptr<const float_vector> values) {
    round_request request{plan, self_index, values, 1.0};
    round_config config{.offload_elements = offload_elements_};
    // Losses are reported by links only. However slowly these threads run (instrumented, on a
    // loaded machine), no member may be considered lost for that.
    config.stall_timeout = config.takeover_timeout = patience;
    config.deadline = 2 * patience;
    auto engine =
      std::make_shared<round_engine>(request, config, memory_, std::make_shared<port>(*this), now);
    book_.with([&] {
      engine_ = engine;
      report_.reset();
    });
    rounds_.begin(engine, [](const peer_record&, const wire::event&) {});
  }

  /// How the round ended here.
  std::optional<round_report> finish() {
    auto engine = book_.with([&] { return engine_; });
    if (!book_.wait([&] { return report_.has_value(); }, [&] { engine->check(); }))
      return std::nullopt;
    auto how = book_.with([&] { return *std::exchange(report_, std::nullopt); });
    rounds_.finish(how.report.round, how.promise, now());
    return how.report;
  }

private:
  class port final : public round_port {
  public:
    explicit port(tcp_peer& owner) : owner_(owner) {}
    void send(const peer_record& to, wire::event what, payload body) override {
      owner_.links_->tell(to.id, what, std::move(body));
    }
    bool reduce(const reduce_part& what) override {
      auto engine = owner_.book_.with([&] { return owner_.engine_; });
      owner_.workers_.add([engine, what] { engine->on_reduced(waggle::reduce(what)); });
      return true;
    }
    digest secret(const round_id&, std::uint32_t view) override {
      return sha256(owner_.self_->sign("share " + std::to_string(view)).view());
    }
    signature sign(std::string_view what) override { return owner_.self_->sign(what); }
    bool verify(const peer_record& by, std::string_view what, const signature& its) override {
      return owner_.verifier_->verify(by.key, as_byte_span(what), its);
    }
    void send_all(std::span<const peer_record* const> to, const wire::event& what,
                  const payload& body) override {
      owner_.links_->tell_all(to, what, body, nullptr, [](const peer_record&) {});
    }
    void count_part() override {}
    void count_refused(ec why) override { ADD_FAILURE() << "refused: " << to_string(why); }
    void log(const std::string&) override {}
    void finished(round_finished how) override {
      owner_.book_.with([&] { owner_.report_ = std::move(how); });
    }

  private:
    tcp_peer& owner_;
  };

  /// Reads the frames of one link, on the I/O thread.
  void attach(const std::shared_ptr<net::link>& link) {
    auto announced = std::make_shared<std::optional<result<wire::message>>>();
    std::weak_ptr<net::link> weak = link;
    auto from = link->remote();
    auto events = std::make_shared<net::link_events>();
    events->place = [this, from, announced](const std::string& header, std::size_t bytes) {
      announced->emplace(wire::decode(header, bytes));
      std::shared_ptr<std::byte> memory;
      if (**announced)
        if (const auto* event = std::get_if<wire::event>(&***announced))
          if (const auto* part = std::get_if<wire::part>(event))
            memory = rounds_.destination(from.id, *part, bytes);
      return memory;
    };
    events->shares = [this](const std::string& header, std::size_t bytes) {
      auto m = wire::decode(header, bytes);
      if (!m)
        return false;
      const auto* e = std::get_if<wire::event>(&*m);
      const auto* part = e ? std::get_if<wire::part>(e) : nullptr;
      return part != nullptr && rounds_.zero_copy_ok(*part);
    };
    events->frame_arrived = [this, from, announced, weak](net::frame f) {
      auto message =
        *announced ? *std::exchange(*announced, std::nullopt) : wire::decode(f.header, f.body.size);
      ASSERT_TRUE(message) << to_string(message.error());
      auto* event = std::get_if<wire::event>(&*message);
      ASSERT_NE(event, nullptr);
      EXPECT_TRUE(
        rounds_.deliver({from, std::move(*event), std::move(f.body), weak.lock()}, now()));
    };
    events->closed = [this, from](const failure& why) {
      links_->erase(from.id);
      if (auto engine = book_.with([&] { return engine_; }))
        engine->on_lost(from.id, why.code);
    };
    links_->set(from.id, link);
    link->start(std::move(events));
    book_.with([&] { ++connected_; });
  }

  std::shared_ptr<const identity> self_;
  const std::uint32_t offload_elements_;
  std::shared_ptr<const signature_verifier> verifier_ = make_caching_verifier(4096);
  std::shared_ptr<link_table> links_ = std::make_shared<link_table>();
  round_registry rounds_{{}, [links = links_](const peer_record& to, wire::event what) {
                           links->tell(to.id, what, {});
                         }};
  const round_memory memory_{vector_pool::make(2), buffer_pool::make(4_MiB)};
  journal book_; // guards everything below
  std::size_t connected_ = 0;
  std::shared_ptr<round_engine> engine_;
  std::optional<round_finished> report_;
  workers workers_{2};
  std::shared_ptr<net::transport> transport_;
};

/// Peers that are all connected with each other.
class tcp_group {
public:
  explicit tcp_group(std::uint32_t offload_elements) : offload_elements_(offload_elements) {}
  void connect(std::size_t n) {
    for (std::size_t i = 0; i < n; ++i)
      peers.push_back(std::make_unique<tcp_peer>(i + 1, offload_elements_));
    for (std::size_t i = 0; i < n; ++i) {
      auto where = peers[i]->listen();
      for (std::size_t j = 0; j < i; ++j)
        peers[j]->dial(where);
    }
    for (auto& p : peers)
      EXPECT_TRUE(p->wait_for_links(n - 1));
  }

  round_plan plan_of(std::uint64_t elements, codec_id codec, std::uint8_t number) {
    round_plan plan;
    plan.id.bytes.fill(std::byte{number});
    plan.prefix = "test";
    plan.elements = elements;
    plan.part_elements = 1U << 14U;
    plan.codecs = {{elements, codec}};
    for (std::size_t i = 0; i < peers.size(); ++i) {
      plan.members.push_back({peers[i]->record(), member_mode::node});
      plan.shares.push_back(elements / peers.size()
                            + (i == 0 ? elements % peers.size() : std::uint64_t{0}));
    }
    plan.gathered.resize(peers.size());
    EXPECT_TRUE(validate_plan(plan));
    return plan;
  }

  /// Random values of each peer.
  std::vector<std::shared_ptr<const float_vector>> values_of(std::uint64_t elements) const {
    std::vector<std::shared_ptr<const float_vector>> out;
    for (std::size_t i = 0; i < peers.size(); ++i) {
      random_source random{i + 1};
      auto values = std::make_shared<float_vector>(elements);
      for (auto& x : *values)
        x = static_cast<float>(random.unit()) - 0.5F;
      out.push_back(std::move(values));
    }
    return out;
  }

  void begin(const round_plan& plan,
             const std::vector<std::shared_ptr<const float_vector>>& values) {
    for (std::size_t i = 0; i < peers.size(); ++i)
      peers[i]->begin(plan, i, values[i]);
  }

  std::vector<std::unique_ptr<tcp_peer>> peers;

private:
  const std::uint32_t offload_elements_;
};

} // namespace waggle::testing
