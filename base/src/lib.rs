//! Units, errors and places: what every rung of Xebec shares.
