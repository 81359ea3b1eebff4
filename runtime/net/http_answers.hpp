#pragma once

// Internal to runtime/net: what a client of HTTP asks for, and what it gets.

#include <string>

#include <boost/beast/http/message.hpp>
#include <boost/beast/http/string_body.hpp>

#include "runtime/net/http_connection.hpp"
#include "runtime/net/page_proof.hpp"

namespace waggle::net {

using page_request = boost::beast::http::request<boost::beast::http::string_body>;
using page_response = boost::beast::http::response<boost::beast::http::string_body>;

page_response plain_page(unsigned status, std::string text);

/// The page that a proof is for, on an encrypted connection.
page_of_channel page_of(const page_request& request, const byte_stream& stream);

http_request described(const page_request& request, const byte_stream& stream,
                       const http_settings& settings);

/// The handler's answer, or why there is none.
http_response answer_to(const http_request& request, const http_settings& settings);

/// What a stream says next; empty: nothing yet, or there is no time for it.
std::string next_piece(http_stream& body, const http_settings& settings);

} // namespace waggle::net
