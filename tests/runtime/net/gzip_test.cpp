#include "runtime/net/gzip.hpp"

#include <gtest/gtest.h>

namespace waggle::net {

namespace {

std::string unpacked(const std::string& body) {
  return gunzip({reinterpret_cast<const unsigned char*>(body.data()), body.size()});
}

http_response reply_of(std::size_t lines) {
  http_response out;
  for (std::size_t i = 0; i < lines; ++i)
    out.body += "waggle_peers{run=\"first\"} " + std::to_string(i) + "\n";
  return out;
}

TEST(Gzip, ABodyOfManyLinesIsSentInAFractionOfItsBytes) {
  auto plain = reply_of(1'000), packed = plain;
  compress(packed);
  EXPECT_LT(packed.body.size() * 5, plain.body.size());
  EXPECT_EQ(unpacked(packed.body), plain.body);
  const std::vector<std::pair<std::string, std::string>> headers{{"Content-Encoding", "gzip"},
                                                                 {"Vary", "Accept-Encoding"}};
  EXPECT_EQ(packed.headers, headers);
}

TEST(Gzip, BodiesThatFitIntoAPacketOrHaveACodingOrGoOnStayAsTheyAre) {
  auto small = reply_of(1), coded = reply_of(1'000), endless = reply_of(1'000);
  coded.headers = {{"Content-Encoding", "gzip"}};
  endless.stream = [](steady_time) { return std::string{}; };
  for (auto* reply : {&small, &coded, &endless}) {
    auto before = reply->body;
    auto headers = reply->headers;
    compress(*reply);
    EXPECT_EQ(reply->body, before);
    EXPECT_EQ(reply->headers, headers);
  }
}

} // namespace

} // namespace waggle::net
