#include <iostream>

#include "runtime/cli/commands.hpp"
#include "runtime/cli/peer_address.hpp"
#include "runtime/crypto/identity.hpp"

namespace waggle {

namespace {

int run_id(const run_options& options) {
  auto folder = options.given.contains("data-dir")
                  ? options.data_dir
                  : default_folder(options.data_dir, options.run_id, 1);
  auto file = options.identity.value_or(folder / "identity.pem");
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
          .details =
            "The key stays in --data-dir (identity.pem, readable by its owner only). Without that "
            "option, it is that of the first peer of --run-id in this folder.\n",
          .run = run_id,
          .single_options = {"run-id", "data-dir", "identity"}};
}

} // namespace waggle
