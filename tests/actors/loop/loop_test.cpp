// Loops over plain arrays, inside a service: in its actor system, with its registry and log.

#include "waggle/loop.hpp"

#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <limits>
#include <mutex>
#include <optional>
#include <thread>

#include <caf/all.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/registry.h>

#include "actors/loop/swarm_session.hpp"
#include "tests/support/scratch_folder.hpp"
#include "waggle/control.hpp"

namespace waggle {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// y = w·x by SGD with momentum; the gradient depends on the seed.
struct line {
  explicit line(std::uint64_t seed) : state(seed) {}

  std::vector<float> w = std::vector<float>(4, 0.5F);
  std::vector<float> momentum = std::vector<float>(4, 0);
  std::uint64_t state;

  std::vector<float> gradient() {
    std::vector<float> g(4);
    for (std::size_t i = 0; i < g.size(); ++i) {
      state = state * 6364136223846793005U + 1442695040888963407U;
      g[i] = w[i] - static_cast<float>(state >> 60U) / 16;
    }
    return g;
  }
  void update(std::span<const float> gradient) {
    for (std::size_t i = 0; i < w.size(); ++i) {
      momentum[i] = 0.9F * momentum[i] + gradient[i];
      w[i] -= 0.1F * momentum[i];
    }
  }
  loop_options options() {
    loop_options o{.parameters = {{"w", {2, 2}, w, {{"momentum", momentum}}}},
                   .optimizer = "sgd with momentum 0.9",
                   .learning_rate = 0.1};
    o.update = [this](std::span<const float> g, double) { update(g); };
    return o;
  }
};

class LoopInAService : public ::testing::Test {
protected:
  swarm_options options(const std::string& name, std::vector<std::string> peers = {}) {
    swarm_options o{.run = "lines",
                    .initial_peers = std::move(peers),
                    .listen = "127.0.0.1:0",
                    .data_dir = folder_ / name,
                    .target_batch_size = 8,
                    .max_epochs = 20};
    o.around = {&system, registry, [this](log_level, std::string_view text) {
                  std::lock_guard guard{mutex};
                  lines.emplace_back(text);
                }};
    return o;
  }
  static void use(swarm_options& o, const std::string& strategy) {
    o.strategy = strategy;
    if (strategy.find(':') != std::string::npos) // its rounds do not count samples
      o.target_batch_size = swarm_options{}.target_batch_size;
  }
  [[nodiscard]] std::size_t series() const {
    std::size_t all = 0;
    for (const auto& family : registry->Collect())
      all += family.metric.size();
    return all;
  }

  std::promise<std::string> first_address;
  // Before the system: its actors may log until it has ended.
  std::mutex mutex;
  std::vector<std::string> lines;
  std::shared_ptr<prometheus::Registry> registry = std::make_shared<prometheus::Registry>();
  caf::actor_system_config config;
  caf::actor_system system{config};
  testing::scratch_folder scratch_;
  const fs::path& folder_ = scratch_.path();
};

TEST_F(LoopInAService, AloneIsThePlainLoopAndLeavesNothingBehind) {
  line plain{1};
  line ours{1};
  auto running = system.registry().running();
  auto in = join(options("alone"));
  EXPECT_EQ(in->wait_until_ready(0ms).error().code, ec::not_ready);
  {
    auto peer = loop::start(*in, ours.options());
    for (int i = 0; i < 20; ++i) {
      plain.update(plain.gradient());
      auto outcome = peer->step(ours.gradient(), 8, 0);
      ASSERT_EQ(outcome, i < 19 ? step_outcome::stepped : step_outcome::finished) << i;
      ASSERT_EQ(ours.w, plain.w) << i;
    }
    EXPECT_TRUE(in->wait_until_ready(5s));
    EXPECT_GT(series(), 100U);
    EXPECT_GT(system.registry().running(), running);
  }
  EXPECT_EQ(series(), 0U);
  EXPECT_EQ(in->wait_until_ready(1s).error().code, ec::shutting_down);
  std::lock_guard guard{mutex};
  EXPECT_THAT(lines, ::testing::Contains(HasSubstr("listening on 127.0.0.1:")));
  EXPECT_THAT(lines, ::testing::Contains(HasSubstr("initial peers for others: 127.0.0.1:")));
}

/// With what it has kept: the state of its data.
TEST_F(LoopInAService, GoesOnAfterAnyStepBitByBit) {
  constexpr int steps = 12;
  for (const char* strategy : {"collaborative", "local-updates", "diloco:steps=5"}) {
    auto run = [&](const std::string& folder, std::uint64_t seed, int from, int until) {
      auto o = options(std::string{strategy} + "/" + folder);
      o.max_epochs = 0;
      use(o, strategy);
      line own{seed};
      own.w[0] = static_cast<float>(seed); // all comes from the checkpoint
      auto peer = loop::start(*join(o), own.options());
      if (auto kept = peer->kept(); !kept.empty())
        own.state = std::stoull(kept);
      for (int i = from; i < until; ++i) {
        auto gradient = own.gradient();
        peer->keep(std::to_string(own.state));
        auto outcome = peer->step(gradient, 3, 0);
        EXPECT_TRUE(outcome == step_outcome::held || outcome == step_outcome::stepped);
      }
      return own.w;
    };
    auto expected = run("whole", 1, 0, steps);
    for (int stop : {1, 5, 8}) {
      (void)run(std::to_string(stop), 1, 0, stop);
      EXPECT_EQ(run(std::to_string(stop), 2, stop, steps), expected) << strategy << ", " << stop;
    }
  }
}

// Each copies its parameters between two of its own passes.
TEST_F(LoopInAService, TwoLoopsThatStepInEachPassShareAnAnchor) {
  auto train = [this](const char* name, std::uint64_t seed, const std::string& address) {
    auto o = options(name, address.empty() ? std::vector<std::string>{} : std::vector{address});
    use(o, "diloco:steps=3");
    o.more["min-peers"] = "2";
    auto in = join(o);
    line own{seed};
    auto peer = loop::start(*in, own.options());
    if (address.empty())
      first_address.set_value(in->address());
    while (peer->step(own.gradient(), 4, 0) != step_outcome::finished) {
    }
    { auto leaves = std::move(*peer); }
    auto last = in->status();
    EXPECT_GT(last.rounds, 10U);
    EXPECT_GT(last.samples_used, last.samples_offered / 2);
    return std::pair{last.epoch, last.parameters};
  };
  auto other = std::async(std::launch::async, train, "first", 1, "");
  auto second = train("second", 2, first_address.get_future().get());
  EXPECT_EQ(second, other.get());
  EXPECT_EQ(second.first, 20U);
}

TEST_F(LoopInAService, ThatLeavesByItselfUnderNoticeWaitsUntilItsSamplesAreInAnUpdate) {
  auto with_two = [this](const char* name, std::vector<std::string> peers = {}) {
    auto o = options(name, std::move(peers));
    o.more["min-peers"] = "2";
    o.target_batch_size = 400;
    o.max_epochs = 0;
    return o;
  };
  auto first = join(with_two("first"));
  line own{1};
  auto peer = loop::start(*first, own.options());
  std::atomic<bool> over{false};
  auto other = std::async(std::launch::async, [&] {
    auto second = join(with_two("second", first->addresses()));
    line its{2};
    auto stays = loop::start(*second, its.options());
    while (!over)
      (void)stays->step(its.gradient(), 4, 0);
  });
  while (first->status().rounds < 3)
    (void)peer->step(own.gradient(), 4, 0);
  while (peer->step(own.gradient(), 4, 0) != step_outcome::held) {
  }
  auto dropped = first->status().samples_dropped;
  ASSERT_TRUE(first->notice(20s));
  { auto leaves = std::move(*peer); }
  EXPECT_EQ(first->status().samples_pending, 0U);
  EXPECT_EQ(first->status().samples_dropped, dropped);
  over = true;
  other.get();
}

TEST_F(LoopInAService, TwoLoopsOfOneThreadDoNotWaitForEachOtherForever) {
  auto with_two = [this](const char* name, std::vector<std::string> peers = {}) {
    auto o = options(name, std::move(peers));
    o.more["min-peers"] = "2";
    o.join_timeout = 25ms; // forty of them
    return o;
  };
  auto first = join(with_two("first"));
  line a{1};
  line b{2};
  auto one = loop::start(*first, a.options());
  EXPECT_EQ(first->addresses(), std::vector{first->address()});
  auto second = join(with_two("second", first->addresses()));
  auto other = loop::start(*second, b.options());
  ASSERT_TRUE(other) << other.error().detail;
  try {
    while (one->step(a.gradient(), 4, 0) != step_outcome::finished) {
    }
    ADD_FAILURE() << "the other loop did not step";
  } catch (const swarm_error& e) {
    EXPECT_EQ(e.code(), ec::timeout);
    EXPECT_THAT(e.what(), HasSubstr("1 other loop of this thread cannot step"));
    EXPECT_THAT(e.what(), HasSubstr("a thread or a process of its own"));
  }
  std::lock_guard guard{mutex};
  EXPECT_THAT(lines, Contains(HasSubstr("1 other loop of this thread cannot step")));
}

TEST_F(LoopInAService, TwoLoopsOfOneSystemTrainOneModel) {
  auto with_two = [this](const char* name, std::vector<std::string> peers = {}) {
    auto o = options(name, std::move(peers));
    o.more["min-peers"] = "2";
    return o;
  };
  auto first = join(with_two("first"));
  line a{1};
  line b{2};
  auto train = [](loop& peer, line& own) {
    while (peer.step(own.gradient(), 4, 0) != step_outcome::finished) {
    }
  };
  auto peer = loop::start(*first, a.options());
  auto address = first->address();
  auto other = std::async(std::launch::async, [&] {
    auto second = join(with_two("second", {address}));
    if (!second)
      return second.error().detail;
    auto own = loop::start(*second, b.options());
    if (!own)
      return own.error().detail;
    train(*own, b);
    return std::string{};
  });
  train(*peer, a);
  { auto leaves = std::move(*peer); }
  EXPECT_EQ(other.get(), "");
  EXPECT_EQ(a.w, b.w);
  EXPECT_EQ(a.momentum, b.momentum);
  EXPECT_EQ(series(), 0U);
}

TEST_F(LoopInAService, OthersTrainOnWhileALoopIsPausedAndItTakesTheirState) {
  struct member {
    explicit member(std::uint64_t seed) : own(seed) {}
    line own;
    std::promise<std::string> address;
    std::promise<control_actor> control;
    std::uint64_t downloads = 0;
  } members[]{member{1}, member{2}};
  std::atomic<bool> done{false};
  auto run = [this, &done](member& m, const char* name, std::vector<std::string> peers) {
    auto o = options(name, std::move(peers));
    o.max_epochs = 0;
    auto in = *join(o);
    auto peer = *loop::start(in, m.own.options());
    m.address.set_value(in.address());
    m.control.set_value(*control_of(in));
    while (!done)
      peer.step(m.own.gradient(), 4, 0);
    m.downloads = in.status().state_downloads;
  };
  auto first =
    std::async(std::launch::async, run, std::ref(members[0]), "first", std::vector<std::string>{});
  auto address = members[0].address.get_future().get();
  auto second =
    std::async(std::launch::async, run, std::ref(members[1]), "second", std::vector{address});
  caf::scoped_actor self{system};
  auto ask = [&self](const control_actor& to, auto what) {
    peer_state out;
    self->request(to, 10s, what)
      .receive([&](const peer_state& now) { out = now; },
               [](const caf::error& why) { ADD_FAILURE() << to_string(why); });
    return out;
  };
  auto until = [&ask](const control_actor& of, auto what) {
    auto now = ask(of, get_peer_state{});
    for (auto end = std::chrono::steady_clock::now() + 30s;
         !what(now) && std::chrono::steady_clock::now() < end; now = ask(of, get_peer_state{}))
      std::this_thread::yield();
    EXPECT_TRUE(what(now)) << now.phase << " at epoch " << now.epoch << ": " << now.waiting_for;
    return now;
  };
  auto one = members[0].control.get_future().get();
  auto other = members[1].control.get_future().get();
  until(other, [](const peer_state& s) { return s.group_size == 2 && s.phase == "training"; });
  ask(other, pause_peer{});
  auto paused = until(other, [](const peer_state& s) { return s.phase == "paused"; });
  EXPECT_EQ(paused.group_size, 0U);
  until(one, [&](const peer_state& s) { return s.epoch >= paused.epoch + 20; });
  EXPECT_EQ(ask(other, get_peer_state{}).epoch, paused.epoch);
  ask(other, resume_peer{});
  until(other, [&](const peer_state& s) {
    return s.group_size == 2 && s.phase == "training" && s.epoch > paused.epoch + 20;
  });
  done = true;
  first.get();
  second.get();
  EXPECT_GE(members[1].downloads, 2U) << "when it came, and when it went on";
}

/// Calls it in another thread, which has to end it.
template <class Call>
void in_another_thread(Call call) {
  std::promise<void> ended;
  std::thread thread{[&] {
    call();
    ended.set_value();
  }};
  if (ended.get_future().wait_for(60s) != std::future_status::ready) {
    std::fputs("it waits for the thread that made it\n", stderr);
    std::_Exit(1);
  }
  thread.join();
}

// Each has an actor system of its own.
TEST_F(LoopInAService, APeerIsMadeUsedAndDestroyedByDifferentThreads) {
  auto o = options("threads");
  o.around = {};
  o.log_level = "warn";
  line own{1};
  std::optional<swarm> in;
  std::optional<loop> peer;
  in_another_thread([&] { in.emplace(*join(o)); });
  peer.emplace(*loop::start(*in, own.options()));
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(peer->step(own.gradient(), 8, 0), step_outcome::stepped);
  EXPECT_EQ(in->epoch(), 3U);
  ASSERT_TRUE(control_of(*in));
  in_another_thread([&] { peer.reset(); });
  EXPECT_EQ(in->status().samples_used, 24U);
  in_another_thread([&] { in.reset(); });
  auto again = join(o); // the folder is free
  EXPECT_TRUE(again) << again.error().detail;
}

TEST_F(LoopInAService, WhatAStopKeepsIsPendingAndWhatItThrowsAwayIsDropped) {
  for (const char* strategy : {"collaborative", "local-updates", "diloco:steps=5"})
    for (bool resume : {true, false}) {
      auto o = options(std::string{strategy} + (resume ? "/kept" : "/thrown away"));
      o.max_epochs = 0;
      o.resume = resume;
      use(o, strategy);
      auto run = [&](std::uint64_t steps) {
        auto in = *join(o);
        line own{1};
        auto expect_balance = [&](const swarm_status& s) {
          EXPECT_EQ(s.samples_offered, s.samples_used + s.samples_dropped + s.samples_pending);
        };
        {
          auto peer = *loop::start(in, own.options());
          for (std::uint64_t i = 0; i < steps; ++i) {
            peer.step(own.gradient(), 3, 0);
            expect_balance(in.status());
          }
        }
        expect_balance(in.status());
        return in.status();
      };
      auto first = run(7);
      EXPECT_EQ(first.samples_offered, 21U) << strategy;
      bool local = std::string_view{strategy} == "local-updates"; // which uses each at once
      EXPECT_EQ(first.samples_used, local                                           ? 21U
                                    : std::string_view{strategy} == "collaborative" ? 18U
                                                                                    : 15U)
        << strategy;
      EXPECT_EQ(first.samples_pending, resume ? 21 - first.samples_used : 0) << strategy;
      auto second = run(7);
      EXPECT_EQ(second.samples_offered, 21 + first.samples_pending) << strategy;
    }
}

TEST_F(LoopInAService, ItsFolderStaysWhereItWasWhenTheProcessGoesElsewhere) {
  auto before = fs::current_path();
  fs::create_directories(folder_ / "here");
  fs::create_directories(folder_ / "there");
  fs::current_path(folder_ / "here");
  auto o = options("");
  o.data_dir = "peer";
  auto train = [&] {
    auto in = *join(o);
    fs::current_path(folder_ / "there");
    line own{1};
    auto peer = *loop::start(in, own.options());
    (void)peer.kept(); // the state is loaded
    EXPECT_EQ(peer.step(own.gradient(), 8, 0), step_outcome::stepped);
    return in.epoch();
  };
  EXPECT_EQ(train(), 1U);
  EXPECT_TRUE(fs::exists(folder_ / "here/peer/checkpoints"));
  EXPECT_TRUE(fs::is_empty(folder_ / "there"));
  fs::current_path(folder_ / "here");
  EXPECT_EQ(train(), 2U) << "it goes on";
  fs::current_path(before);
}

TEST_F(LoopInAService, WithoutAFolderEachRunBeginsAnew) {
  auto before = fs::current_path();
  fs::current_path(folder_);
  auto o = options("");
  o.data_dir.clear();
  auto epochs_of = [&](const char* run) {
    o.run = run;
    auto in = *join(o);
    line own{1};
    auto peer = *loop::start(in, own.options());
    (void)peer.kept(); // the state is loaded
    EXPECT_EQ(peer.step(own.gradient(), 8, 0), step_outcome::stepped);
    return in.epoch();
  };
  EXPECT_EQ(epochs_of("birds"), 1U);
  EXPECT_EQ(epochs_of("bees"), 1U);
  EXPECT_EQ(epochs_of("birds"), 2U);
  fs::current_path(before);
  std::lock_guard guard{mutex};
  EXPECT_THAT(lines, ::testing::Contains(HasSubstr("resumed from the checkpoint of epoch 1")));
}

/// Its run has ended, say, and all peers have left.
TEST_F(LoopInAService, ALoopThatNobodyAnswersEndsWithASentence) {
  auto o = options("late", {"127.0.0.1:1"});
  o.join_timeout = 5ms;
  auto in = join(o);
  line model{1};
  auto peer = loop::start(*in, model.options());
  try {
    for (auto end = std::chrono::steady_clock::now() + 60s; std::chrono::steady_clock::now() < end;)
      (void)peer->step(model.gradient(), 8, 0);
    FAIL() << "it goes on";
  } catch (const swarm_error& e) {
    EXPECT_EQ(e.code(), ec::unreachable);
    EXPECT_THAT(e.what(),
                HasSubstr("no peer of a run named lines has answered for 1 s (127.0.0.1:1, "));
    EXPECT_THAT(e.what(), HasSubstr("it has ended and all have left, or it has not begun"));
  }
  EXPECT_EQ(model.w, line{1}.w);
}

TEST_F(LoopInAService, MistakesAreRefusedBeforeAnythingIsSent) {
  auto in = join(options("wrong"));
  line own{1};
  auto refusal = [&](auto change) {
    auto o = own.options();
    change(o);
    auto started = loop::start(*in, std::move(o));
    return started ? "none" : started.error().detail;
  };
  EXPECT_THAT(refusal([](loop_options& o) { o.parameters.clear(); }), HasSubstr("no parameters"));
  EXPECT_THAT(refusal([](loop_options& o) { o.update = {}; }), HasSubstr("no update"));
  EXPECT_THAT(refusal([](loop_options& o) { o.learning_rate = std::nan(""); }),
              HasSubstr("learning_rate"));
  EXPECT_THAT(refusal([](loop_options& o) { o.parameters[0].shape = {3}; }),
              HasSubstr("w has 4 values, and its shape stands for 3"));
  EXPECT_THAT(refusal([](loop_options& o) { o.parameters.push_back(o.parameters[0]); }),
              HasSubstr("two arrays have the name w"));
  auto peer = loop::start(*in, own.options());
  EXPECT_THROW(peer->step(std::vector<float>(3), 4, 0), std::invalid_argument);
  EXPECT_THROW(peer->step(own.gradient(), 9, 0), std::invalid_argument);
  std::vector<float> broken(4, std::numeric_limits<float>::quiet_NaN());
  EXPECT_EQ(peer->step(broken, 4, 0), step_outcome::dropped);
  EXPECT_EQ(peer->step(own.gradient(), 4, std::nan("")), step_outcome::dropped);
  EXPECT_EQ(peer->step(own.gradient(), 8, {}), step_outcome::stepped) << "no loss is known";
  EXPECT_THAT(refusal([](loop_options&) {}), HasSubstr("already has an optimizer"));
}

TEST_F(LoopInAService, ASentenceAboutOptionsNamesTheMembersThatALoopSets) {
  auto o = options("wrong");
  o.more["client-mode"] = "true";
  EXPECT_THAT(join(o).error().detail,
              StartsWith("swarm_options::more: client-mode needs swarm_options::initial_peers:"));
}

} // namespace
} // namespace waggle
