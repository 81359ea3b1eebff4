// Rounds with real threads: every peer has an I/O thread that reads parts, workers that sum, and a
// thread that checks the clock, all over real sockets. No actors: what the thread sanitizer finds
// here is in this repository's code.

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include <gtest/gtest.h>

#include "runtime/allreduce/link_table.hpp"
#include "runtime/allreduce/round_registry.hpp"
#include "runtime/core/random.hpp"
#include "runtime/crypto/digest.hpp"
#include "runtime/net/tcp_transport.hpp"
#include "tests/support/fake_signatures.hpp"

namespace waggle {
namespace {

steady_time now() {
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

class peer {
public:
  explicit peer(std::uint64_t seed) : self_(identity::from_seed(seed)) {
    net::tcp_transport_config config;
    config.run_id = "test";
    config.self = self_;
    config.verifier = make_plain_verifier();
    config.record = record();
    transport_ = net::make_tcp_transport(std::move(config));
  }
  ~peer() { stop(); }

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

  void begin(const round_plan& plan, std::size_t self_index, std::vector<float> values) {
    round_request request{plan, self_index,
                          std::make_shared<const float_vector>(values.begin(), values.end()), 1.0};
    round_config config;
    config.offload_elements = 1;
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
  class port final : public testing::fake_signing_port {
  public:
    explicit port(peer& owner) : fake_signing_port(owner.record().id), owner_(owner) {}
    void send(const peer_record& to, wire::event what, payload body) override {
      owner_.links_->tell(to.id, what, std::move(body));
    }
    bool reduce(const reduce_part& what) override {
      auto engine = owner_.book_.with([&] { return owner_.engine_; });
      owner_.workers_.add([engine, what] { engine->on_reduced(waggle::reduce(what)); });
      return true;
    }
    digest secret(const round_id&, std::uint32_t view) override {
      return sha256(std::to_string(view) + " of "
                    + std::to_string(reinterpret_cast<std::uintptr_t>(this)));
    }
    void count_part() override {}
    void count_refused(ec why) override { ADD_FAILURE() << "refused: " << to_string(why); }
    void log(const std::string&) override {}
    void finished(round_finished how) override {
      owner_.book_.with([&] { owner_.report_ = std::move(how); });
    }

  private:
    peer& owner_;
  };

  /// Reads the frames of one link, on the I/O thread.
  void attach(const std::shared_ptr<net::link>& link) {
    auto announced = std::make_shared<std::optional<result<wire::message>>>();
    std::weak_ptr<net::link> weak = link;
    auto from = link->remote();
    net::link_events events;
    events.body_memory = [this, from, announced](const std::string& header, std::size_t bytes) {
      announced->emplace(wire::decode(header, bytes));
      std::shared_ptr<std::byte> memory;
      if (**announced)
        if (const auto* event = std::get_if<wire::event>(&***announced))
          if (const auto* part = std::get_if<wire::part>(event))
            memory = rounds_.destination(from.id, *part, bytes);
      return memory;
    };
    events.on_frame = [this, from, announced, weak](net::frame f) {
      auto message =
        *announced ? *std::exchange(*announced, std::nullopt) : wire::decode(f.header, f.body.size);
      ASSERT_TRUE(message) << to_string(message.error());
      auto* event = std::get_if<wire::event>(&*message);
      ASSERT_NE(event, nullptr);
      EXPECT_TRUE(
        rounds_.deliver({from, std::move(*event), std::move(f.body), weak.lock()}, now()));
    };
    events.on_close = [this, from](const failure& why) {
      links_->erase(from.id);
      if (auto engine = book_.with([&] { return engine_; }))
        engine->on_lost(from.id, why.code);
    };
    links_->set(from.id, link);
    link->start(std::move(events));
    book_.with([&] { ++connected_; });
  }

  std::shared_ptr<const identity> self_;
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

class RoundOverTcp : public ::testing::Test {
protected:
  void connect(std::size_t n) {
    for (std::size_t i = 0; i < n; ++i)
      peers.push_back(std::make_unique<peer>(i + 1));
    for (std::size_t i = 0; i < n; ++i) {
      auto where = peers[i]->listen();
      for (std::size_t j = 0; j < i; ++j)
        peers[j]->dial(where);
    }
    for (auto& p : peers)
      ASSERT_TRUE(p->wait_for_links(n - 1));
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

  static std::vector<float> values_of(std::size_t member, std::uint64_t elements) {
    random_source random{member + 1};
    std::vector<float> values(elements);
    for (auto& x : values)
      x = static_cast<float>(random.unit()) - 0.5F;
    return values;
  }

  void begin(const round_plan& plan) {
    for (std::size_t i = 0; i < peers.size(); ++i)
      peers[i]->begin(plan, i, values_of(i, plan.elements));
  }

  std::vector<std::unique_ptr<peer>> peers;
};

TEST_F(RoundOverTcp, AllMembersEndWithTheSameBytesForEveryCodec) {
  connect(4);
  constexpr std::uint64_t elements = 300'001;
  std::uint8_t number = 0;
  for (auto codec : {codec_id::none, codec_id::float16, codec_id::none, codec_id::blockwise8}) {
    auto plan = plan_of(elements, codec, ++number);
    begin(plan);
    std::vector<round_report> reports;
    for (auto& p : peers) {
      auto report = p->finish();
      ASSERT_TRUE(report) << "round " << int{number};
      ASSERT_EQ(report->outcome, round_outcome::complete) << to_string(report->why);
      reports.push_back(*report);
    }
    for (const auto& report : reports)
      ASSERT_TRUE(*report.values == *reports[0].values) << "round " << int{number};
    if (codec != codec_id::none)
      continue;
    std::vector<std::vector<float>> all;
    for (std::size_t i = 0; i < peers.size(); ++i)
      all.push_back(values_of(i, elements));
    for (std::size_t k = 0; k < elements; k += 1'009) {
      double sum = 0;
      for (const auto& values : all)
        sum += static_cast<double>(values[k]);
      ASSERT_FLOAT_EQ((*reports[0].values)[k], static_cast<float>(sum / 4)) << k;
    }
  }
}

TEST_F(RoundOverTcp, SurvivorsOfALossInTheMiddleEndWithTheSameBytes) {
  connect(4);
  auto plan = plan_of(2'000'000, codec_id::none, 1);
  begin(plan);
  peers[3]->stop();
  std::vector<round_report> reports;
  for (std::size_t i = 0; i < 3; ++i) {
    auto report = peers[i]->finish();
    ASSERT_TRUE(report);
    ASSERT_NE(report->outcome, round_outcome::failed) << to_string(report->why);
    reports.push_back(*report);
  }
  for (const auto& report : reports) {
    EXPECT_EQ(report.contributors, reports[0].contributors);
    EXPECT_TRUE(*report.values == *reports[0].values);
  }
}

} // namespace
} // namespace waggle
