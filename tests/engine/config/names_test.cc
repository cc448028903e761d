// Goal: a slip of the keyboard finds the name that was meant; another word finds none.
// Method: distances known by hand, and slips of real keys.
#include "engine/config/names.h"

#include <gtest/gtest.h>

#include <array>

namespace headrace::engine {
namespace {

TEST(NamesTest, distance_counts_inserted_removed_and_replaced_letters) {
    EXPECT_EQ(edit_distance("", ""), 0);
    EXPECT_EQ(edit_distance("", "abc"), 3);
    EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
    EXPECT_EQ(edit_distance("seed", "sed"), 1);
    EXPECT_EQ(edit_distance("trian", "train"), 1);
    EXPECT_EQ(edit_distance("ab", "ba"), 1);
    EXPECT_EQ(edit_distance("abc", "cab"), 2);
    EXPECT_EQ(edit_distance("max-length", "Max_Length"), 0);
}

TEST(NamesTest, the_nearest_is_found_and_strangers_are_not) {
    const std::array<std::string_view, 4> names = {"seed", "learning_rate", "max_length", "dtype"};
    EXPECT_EQ(nearest_name("learnign_rate", names), "learning_rate");
    EXPECT_EQ(nearest_name("sead", names), "seed");
    EXPECT_EQ(nearest_name("max_len", names), "");  // three of seven letters: not a slip
    EXPECT_EQ(nearest_name("banana", names), "");
    EXPECT_EQ(nearest_name("", names), "");
}

}  // namespace
}  // namespace headrace::engine
