module com.example.rows {
    requires io.hugewise.micrometer;
}
