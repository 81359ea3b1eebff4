#include "runtime/net/gzip.hpp"

#include <gtest/gtest.h>

#include "runtime/core/random.hpp"

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

TEST(Gzip, EachPieceOfAStreamIsReadWhenItArrives) {
  auto random = random_source{7};
  std::string stream = gzip_begin(), all;
  for (auto bytes : {1U, 200U, 16'383U, 16'384U, 5U, 65'536U, 131'072U}) {
    std::string piece;
    while (piece.size() < bytes)
      piece += "{\"epoch\":" + std::to_string(random.below(1'000'000)) + "}";
    stream += gzip_piece(piece);
    all += piece;
    EXPECT_EQ(unpacked(stream), all) << bytes;
  }
  EXPECT_LT(stream.size() * 2, all.size());
}

} // namespace

} // namespace waggle::net
