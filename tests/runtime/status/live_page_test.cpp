#include "runtime/status/live_page.hpp"

#include <algorithm>
#include <regex>

#include <gtest/gtest.h>

#include "runtime/core/random.hpp"
#include "runtime/crypto/digest.hpp"
#include "runtime/net/gzip.hpp"
#include "runtime/status/run_curves.hpp"
#include "runtime/status/status_board.hpp"

namespace waggle {
namespace {

status_board board_for(page_audience pages) {
  return status_board{
    std::make_shared<metric_families>(std::make_shared<prometheus::Registry>(), "r", "p"), nullptr,
    pages};
}

std::string header(const net::http_response& from, std::string_view name) {
  for (const auto& [key, value] : from.headers)
    if (key == name)
      return value;
  return {};
}

net::http_request get(std::string target, bool gzip = false) {
  net::http_request request{"GET", std::move(target)};
  request.gzip = gzip;
  return request;
}

TEST(LivePage, EveryFileThatThePageNamesIsServed) {
  auto page = live_page(get("/"));
  ASSERT_EQ(page.status, 200U);
  EXPECT_EQ(page.content_type, "text/html; charset=utf-8");
  std::regex named{R"((?:src|href)="(live/[^"]+)\")"};
  std::size_t files = 0;
  for (std::sregex_iterator i{page.body.begin(), page.body.end(), named}, end; i != end; ++i) {
    EXPECT_EQ(live_page(get("/" + (*i)[1].str())).status, 200U) << (*i)[1];
    ++files;
  }
  EXPECT_GE(files, 4U);
  auto script = live_page(get("/live/app.js?x"));
  EXPECT_EQ(script.content_type, "text/javascript; charset=utf-8");
  std::regex imported{R"(from '\./([^']+)')"};
  for (std::sregex_iterator i{script.body.begin(), script.body.end(), imported}, end; i != end; ++i)
    EXPECT_EQ(live_page(get("/live/" + (*i)[1].str())).status, 200U) << (*i)[1];
}

TEST(LivePage, DecompressesToTheSameForWhoeverCannot) {
  for (const auto& file : live_files()) {
    auto packed = live_page(get(std::string{file.path}, true));
    auto plain = live_page(get(std::string{file.path}));
    EXPECT_EQ(header(packed, "Content-Encoding"), "gzip") << file.path;
    EXPECT_EQ(header(plain, "Content-Encoding"), "") << file.path;
    EXPECT_EQ(packed.body.substr(0, 2), "\x1f\x8b") << file.path;
    ASSERT_FALSE(plain.body.empty()) << file.path;
    EXPECT_NE(header(packed, "ETag"), header(plain, "ETag")) << "other bytes, so another tag";
  }
}

/// Of a run of four peers that has lasted: the files, the curves, and the first snapshot.
TEST(LivePage, CostsAtMost90Kilobytes) {
  random_source random{1};
  auto ms = [&] { return static_cast<double>(random.below(10'000)) / 1000; };
  auto ring = std::make_shared<event_ring>("ab");
  std::array<peer_id, 4> peers;
  for (auto& each : peers)
    random.fill(each.bytes);
  for (std::uint64_t epoch = 1; epoch <= 200; ++epoch) {
    auto now = swarm_time_from(1'700'000'000'000'000'000) + milliseconds{300 * epoch};
    watch::round_ended round{.kind = "gradients", .epoch = epoch, .outcome = "complete"};
    random.fill(round.round.bytes);
    round.duration_ms = ms();
    for (int i = 0; i < 9; ++i)
      round.spans += "p" + std::to_string(ms());
    for (const auto& peer : peers)
      round.members.push_back(
        {peer, peer == peers[0], true, true, 64, ms(), ms(), ms(), ms(), 72'008, 72'008, ms()});
    ring->note(round, peers[0], now);
    ring->note(watch::epochs_ended{epoch, 3, 192, ms(), ms()}, peers[0], now);
    ring->note(watch::checkpoint{epoch, 400'000, ms(), "written"}, peers[0], now);
    if (epoch % 4 == 0)
      ring->note(watch::peer_left{peers[epoch / 4 % 4], "the connection was closed", ms()},
                 peers[0], now);
  }
  auto curves = std::make_shared<run_curves>();
  training_status status;
  for (std::uint64_t epoch = 0; epoch <= 6'000; ++epoch) {
    status.epoch = epoch_id{epoch};
    status.phase = trainer_phase::training;
    status.past.branch = sha256("ours");
    status.loss = 3 + ms();
    status.samples_used = epoch * 256;
    status.effective_batch = 200 + random.below(100);
    status.learning_rate = 0.001;
    status.samples_per_second = 800 + ms();
    curves->on_status(status, {},
                      swarm_time_from(1'700'000'000'000'000'000) + milliseconds{311 * epoch});
  }
  status_board board{
    std::make_shared<metric_families>(std::make_shared<prometheus::Registry>(), "r", "p"), ring,
    page_audience::all, curves};

  constexpr std::size_t every_head = 160; // status line, type, length, cache, server
  std::size_t sent = 0;
  auto count = [&](const net::http_response& reply) {
    sent += every_head + reply.body.size();
    for (const auto& [name, value] : reply.headers)
      sent += name.size() + value.size() + 4;
  };
  for (const auto& file : live_files())
    count(live_page(get(std::string{file.path}, true)));
  auto files = sent;
  auto script = live_page(get("/live/curves.js")).body;
  std::smatch points;
  ASSERT_TRUE(std::regex_search(script, points, std::regex{R"(const points = (\d+);)"}));
  auto drawn = board.answer(get("/api/v1/curves?points=" + points[1].str()));
  ASSERT_EQ(drawn.status, 200U);
  net::compress(drawn);
  count(drawn);
  auto with_curves = sent;
  auto events = board.answer(get("/api/v1/events"));
  count(events);
  std::size_t plain = 0;
  for (auto piece = events.stream({}); !piece.empty(); piece = events.stream({})) {
    plain += piece.size();
    sent += net::gzip_piece(piece).size();
  }
  EXPECT_GT(plain, 100'000U) << "rounds, events";
  EXPECT_LE(sent, 90'000U) << files << " files, " << with_curves - files << " curves, "
                           << sent - with_curves << " events";
}

TEST(LivePage, IsNotSentAgainToABrowserThatHasIt) {
  auto request = get("/live/app.js", true);
  auto tag = header(live_page(request), "ETag");
  request.if_none_match = tag;
  auto again = live_page(request);
  EXPECT_EQ(again.status, 304U);
  EXPECT_TRUE(again.body.empty());
  EXPECT_EQ(header(again, "ETag"), tag);
  request.if_none_match = "\"of another version\"";
  EXPECT_EQ(live_page(request).status, 200U);
}

/// Scripts run under the policy of the page or worker that loads them.
TEST(LivePage, AllowsNoScriptAndNoConnectionButThoseOfItsPeer) {
  auto script = live_page(get("/live/stream.js")).body;
  std::smatch found;
  ASSERT_TRUE(
    std::regex_search(script, found, std::regex{R"(new SharedWorker\(new URL\('([^']+)')"}));
  auto worker = "/live/" + found[1].str();
  for (const auto& file : live_files()) {
    auto reply = live_page(get(std::string{file.path}));
    auto policy = header(reply, "Content-Security-Policy");
    bool own = file.type.starts_with("text/html") || file.type.starts_with("image/svg")
               || worker == file.path;
    EXPECT_EQ(policy.find("default-src 'none'") != std::string::npos, own) << file.path;
    EXPECT_EQ(policy.find("unsafe"), std::string::npos);
    EXPECT_EQ(header(reply, "X-Content-Type-Options"), "nosniff");
    EXPECT_EQ(reply.cache, "no-cache");
  }
}

TEST(LivePage, OtherNamesAreNotFiles) {
  for (const auto* name : {"/live/", "/live/../app.js", "/live/vendor/SHA256SUMS", "/live/app.js/"})
    EXPECT_EQ(live_page(get(name)).status, 404U) << name;
}

TEST(StatusBoard, ShowsThePageToWhomPagesAllows) {
  auto status_of = [](page_audience pages, bool local, const char* target) {
    auto request = get(target);
    request.local = local;
    return board_for(pages).answer(request).status;
  };
  for (const auto* target : {"/", "/live/app.js", "/api/v1/events"}) {
    EXPECT_EQ(status_of(page_audience::all, false, target), 200U);
    EXPECT_EQ(status_of(page_audience::local, true, target), 200U);
    EXPECT_EQ(status_of(page_audience::local, false, target), 404U);
    EXPECT_EQ(status_of(page_audience::none, true, target), 404U);
  }
  EXPECT_EQ(status_of(page_audience::none, false, "/api/v1/status"), 200U) << "not a page of it";
  EXPECT_EQ(board_for(page_audience::all).answer({"POST", "/"}).status, 405U);
}

} // namespace
} // namespace waggle
