#include "runtime/net/page_proof.hpp"

#include "runtime/core/bytes.hpp"

namespace waggle::net {

namespace {

constexpr std::string_view scheme = "Waggle ";

std::string proof_of(const run_secret& run, const std::string& transcript) {
  return std::string{scheme} + to_hex(run.proof(transcript).view());
}

bool proves(const run_secret& run, const std::string& transcript, std::string_view shown) {
  if (!shown.starts_with(scheme))
    return false;
  auto proof = from_hex(shown.substr(scheme.size()));
  return proof && run.proves(transcript, *proof);
}

/// The binding has a fixed size.
std::string asked(const page_of_channel& page) {
  return "page " + page.binding + page.target;
}
std::string answered(const page_of_channel& page) {
  return "answer " + page.binding + page.target;
}

} // namespace

std::string page_proof(const run_secret& run, const page_of_channel& page) {
  return proof_of(run, asked(page));
}

bool proves_page(const run_secret& run, const page_of_channel& page, std::string_view shown) {
  return proves(run, asked(page), shown);
}

std::string answer_proof(const run_secret& run, const page_of_channel& page) {
  return proof_of(run, answered(page));
}

bool proves_answer(const run_secret& run, const page_of_channel& page, std::string_view shown) {
  return proves(run, answered(page), shown);
}

} // namespace waggle::net
