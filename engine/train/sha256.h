// SHA-256 of a stream, from OpenSSL's libcrypto.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace headrace::engine {

class Sha256 {
  public:
    Sha256();
    ~Sha256();
    Sha256(Sha256&&) noexcept;
    Sha256& operator=(Sha256&&) noexcept;

    void add(std::span<const std::byte> bytes);
    // 64 hex digits. The object has nothing more to say afterwards.
    std::string finish();

  private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace headrace::engine
