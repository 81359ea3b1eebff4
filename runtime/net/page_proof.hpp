#pragma once

#include <string>
#include <string_view>

#include "runtime/crypto/run_secret.hpp"

namespace waggle::net {

/// A page that is asked for over one encrypted connection (tls_channel::binding).
struct page_of_channel {
  std::string binding;
  std::string target; // "/api/v1/status"
};

/// The value of the header `Authorization` with which a client shows that it knows the key of the
/// run, which it does not send. Good for this page on this connection: whoever stands in between
/// and ends TLS on both sides has two connections, and can pass on neither this nor the answer.
std::string page_proof(const run_secret& run, const page_of_channel& page);
bool proves_page(const run_secret& run, const page_of_channel& page, std::string_view shown);

/// The value of the header `Authentication-Info` with which the peer shows that it knows it, too.
std::string answer_proof(const run_secret& run, const page_of_channel& page);
bool proves_answer(const run_secret& run, const page_of_channel& page, std::string_view shown);

} // namespace waggle::net
