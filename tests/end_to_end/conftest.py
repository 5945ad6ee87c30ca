"""What these tests share: a stand-in for the trainer."""

from tests.support.standing_in import stand_in as stand_in
