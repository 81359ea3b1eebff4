#include "runtime/status/live_page.hpp"

#include <algorithm>
#include <regex>

#include <gtest/gtest.h>

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

TEST(LivePage, IsSmallAndDecompressesToTheSameForWhoeverCannot) {
  std::size_t sent = 0;
  for (const auto& file : live_files()) {
    auto packed = live_page(get(std::string{file.path}, true));
    auto plain = live_page(get(std::string{file.path}));
    EXPECT_EQ(header(packed, "Content-Encoding"), "gzip") << file.path;
    EXPECT_EQ(header(plain, "Content-Encoding"), "") << file.path;
    EXPECT_EQ(packed.body.substr(0, 2), "\x1f\x8b") << file.path;
    ASSERT_FALSE(plain.body.empty()) << file.path;
    EXPECT_NE(header(packed, "ETag"), header(plain, "ETag")) << "other bytes, so another tag";
    sent += packed.body.size();
  }
  EXPECT_LE(sent, 96U << 10U);
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

TEST(LivePage, AllowsNoScriptAndNoConnectionButThoseOfItsPeer) {
  for (const auto& file : live_files()) {
    auto reply = live_page(get(std::string{file.path}));
    auto policy = header(reply, "Content-Security-Policy");
    EXPECT_NE(policy.find("default-src 'none'"), std::string::npos);
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
