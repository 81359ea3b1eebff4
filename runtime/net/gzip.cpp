#include "runtime/net/gzip.hpp"

#include <algorithm>
#include <array>

#include <zlib.h>

namespace waggle::net {

namespace {

constexpr int gzip_window = 15 + 16;
constexpr std::size_t packet_bytes = 1'400;

bool has_coding(const http_response& reply) {
  return std::any_of(reply.headers.begin(), reply.headers.end(),
                     [](const auto& header) { return header.first == "Content-Encoding"; });
}

} // namespace

void compress(http_response& reply) {
  constexpr int memory_level = 8; // zlib's default
  if (reply.stream || reply.body.size() <= packet_bytes || has_coding(reply))
    return;
  z_stream stream{};
  if (deflateInit2(&stream, Z_BEST_SPEED, Z_DEFLATED, gzip_window, memory_level, Z_DEFAULT_STRATEGY)
      != Z_OK)
    return;
  std::string out(deflateBound(&stream, reply.body.size()), '\0');
  stream.next_in = reinterpret_cast<unsigned char*>(reply.body.data());
  stream.avail_in = static_cast<uInt>(reply.body.size());
  stream.next_out = reinterpret_cast<unsigned char*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  bool whole = deflate(&stream, Z_FINISH) == Z_STREAM_END;
  out.resize(out.size() - stream.avail_out);
  deflateEnd(&stream);
  if (!whole)
    return;
  reply.body = std::move(out);
  reply.headers.emplace_back("Content-Encoding", "gzip");
  reply.headers.emplace_back("Vary", "Accept-Encoding");
}

std::string gunzip(std::span<const unsigned char> bytes) {
  z_stream stream{};
  if (inflateInit2(&stream, gzip_window) != Z_OK)
    return {};
  stream.next_in = const_cast<unsigned char*>(bytes.data()); // zlib does not write there
  stream.avail_in = static_cast<uInt>(bytes.size());
  std::string out;
  std::array<char, 16'384> chunk{};
  int result = Z_OK;
  while (result == Z_OK) {
    stream.next_out = reinterpret_cast<unsigned char*>(chunk.data());
    stream.avail_out = static_cast<uInt>(chunk.size());
    result = inflate(&stream, Z_NO_FLUSH);
    out.append(chunk.data(), chunk.size() - stream.avail_out);
  }
  inflateEnd(&stream);
  return out;
}

} // namespace waggle::net
