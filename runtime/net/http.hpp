#pragma once

#include <functional>
#include <string>

namespace waggle::net {

struct http_request {
  std::string method; // "GET"
  std::string target; // "/metrics"; includes the query string, if any
};

struct http_response {
  unsigned status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};

/// Answers plain HTTP on the peers' port. Called on the I/O thread: must not block or throw.
using http_handler = std::function<http_response(const http_request&)>;

} // namespace waggle::net
