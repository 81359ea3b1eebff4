#include <iostream>

#include "runtime/cli/commands.hpp"
#include "runtime/crypto/identity.hpp"

namespace waggle {

namespace {

int run_id(const run_options& options) {
  auto file = options.identity.value_or(options.data_dir / "identity.pem");
  auto key = identity::load_or_create(file);
  if (!key)
    return bad_usage(key.error().detail);
  std::cout << to_string((*key)->id()) << "\n";
  std::cerr << "from " << file.string() << "\n";
  return exit_clean;
}

} // namespace

command id_command() {
  return {.name = "id",
          .summary = "Shows this peer's id; makes its key if there is none.",
          .details = "The key stays in --data-dir (identity.pem, readable by its owner only).\n",
          .run = run_id,
          .single_options = {"data-dir", "identity"}};
}

} // namespace waggle
